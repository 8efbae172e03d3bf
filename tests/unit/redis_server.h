/* A redis server for tests: started on a free port of loopback, with its files in a folder of its own. */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid;            /* 0: not running */
    uint16_t port;        /* 0: choose one */
    bool keeps;           /* it keeps its keys when it is restarted */
    const char *password; /* NULL: none */
    char folder[64];
};

/* Returns NULL if redis-server is installed and the library was built with hiredis, else why a test cannot run. */
const char *redis_server_missing(void);

/* Starts the server and waits until it answers.  Returns false, and prints why, if it does not. */
bool redis_server_start(struct redis_server *server);

/* Ends the server by this signal; start it again with the same struct. */
void redis_server_end(struct redis_server *server, int signal);

/* Removes the server's files. */
void redis_server_remove(struct redis_server *server);

/* Sends a line such as "DBSIZE" to the server.  Returns the reply's first line, or "" if there is none. */
const char *redis_server_ask(const struct redis_server *server, const char *line);

/* Subscribes to a channel.  Returns a descriptor, or -1. */
int redis_server_subscribe(const struct redis_server *server, const char *channel);

/* True if a message arrives on the descriptor within 5 s. */
bool redis_server_hears(int fd);

#endif
