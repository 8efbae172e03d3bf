/* Connected (MSG) endpoints, internal interface. */
#ifndef TCP_MSG_H
#define TCP_MSG_H

#include "tcp/net/fabric_impl.h"

/* msg_open.c */
int msg_find(struct fabric *fabric, const char *provider, const struct iface *own);
int msg_open(struct fabric *fabric);
void msg_close(struct fabric *fabric);

/* msg_conn.c */
#define MSG_CLOSED "connection closed during the handshake (it has left or died)"
int msg_make_endpoint(struct fabric_link *link, struct fi_info *info, struct fid_ep **out);
void msg_close_endpoint(struct fabric_link *link, struct msg_rail *rail);
/* True if the peer's listener closed the connection before the handshake was complete. */
bool msg_is_closed(int error);
int msg_listen(struct fabric *fabric);
bool msg_read_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes);
int msg_connect(struct fabric_link *link);
void msg_end(struct fabric_link *link);
int msg_handle_events(struct fabric *fabric);
void msg_check_deadlines(struct fabric *fabric);

/* msg_rail.c: connections over further interfaces */
/* Copies the provider's description for each interface.  Called before the listeners are opened. */
int msg_describe_rails(struct fabric *fabric);
void msg_free_rails(struct fabric *fabric);
/* Requests them.  Called by the client of a link that is up. */
void msg_connect_rails(struct fabric_link *link);
/* Handles a request at listener i. */
void msg_accept_rail(struct fabric *fabric, int i, struct fi_info *info, const void *data, size_t n);
/* Handles an event of a further connection: FI_CONNECTED, FI_SHUTDOWN, or an error (kind 0). */
void msg_handle_rail(struct fabric_link *link, struct msg_rail *rail, uint32_t kind, int error, const void *data,
                     size_t n);
void msg_end_rails(struct fabric_link *link);
void msg_check_rails(struct fabric *fabric);
/* Returns the link's connection with this endpoint, or NULL. */
struct msg_rail *msg_find_rail(struct fabric_link *link, const struct fid *fid);
/* True if a message that must follow all writes has to wait for the pieces on further connections. */
bool msg_fence(struct fabric_link *link);
void msg_end_fence(struct fabric_link *link);

/* msg_io.c */
int msg_post_receives(struct fabric *fabric);
int msg_read_completions(struct fabric *fabric);
void msg_flush_waiting(struct fabric_link *link);

#endif
