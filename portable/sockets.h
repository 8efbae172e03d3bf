/* Makes sockets and pipes that executed programs do not inherit, and names the process at the other end. */
#ifndef PORTABLE_SOCKETS_H
#define PORTABLE_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* then sockets_open and sockets_accept set SO_NOSIGPIPE */
#endif

/* Are socket, accept and pipe with FD_CLOEXEC set. */
int sockets_open(int family, int type, bool blocks);
int sockets_accept(int listener);
int sockets_pipe(int ends[2]);

/* True if the peer of a unix socket is known to have this process's effective user. */
bool sockets_peer_is_own_user(int fd);
/* Returns the id of the process that made the other end of a unix socket, or -1 if unknown. */
pid_t sockets_peer_process(int fd);
/* True if unix sockets may have names that are not in the file system. */
bool sockets_have_abstract_names(void);

/* How the kernel finds that a peer's host does not answer.  Fields of 0 keep the kernel's values. */
struct sockets_probes {
    int idle_s, interval_s, count;
    int lost_ms;           /* time without acknowledgement after which the connection fails */
    int retransmission_ms; /* maximum interval between retransmissions */
};

void sockets_set_probes(int fd, const struct sockets_probes *probes);
/* Limits the data that wait in the kernel and have not been sent, if it can be limited. */
void sockets_limit_unsent(int fd, int bytes);

/* What the kernel knows of a TCP connection. */
struct sockets_state {
    bool is_established;
    uint64_t acked, unacked;    /* bytes that the peer has acknowledged; segments that it has not */
    uint64_t unsent;            /* bytes that wait in the kernel, because the peer's window is full or closed */
    uint32_t asked;             /* consecutive probes or retransmissions without an answer */
    uint32_t since_last_ack_ms; /* since anything arrived */
};

/* Returns false if the kernel tells nothing. */
bool sockets_read_state(int fd, struct sockets_state *state);

/* The folder that lists this process's descriptors, or NULL. */
const char *sockets_folder(void);

/* Returns a timer that is readable once its time has passed, or -1 with errno. */
int sockets_timer(void);
/* Starts the timer again, or stops it if ns is 0.  Its descriptor is not readable until the time has passed. */
void sockets_set_timer(int fd, int64_t ns);

#endif
