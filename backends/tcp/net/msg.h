/* Connected (MSG) endpoints, internal interface. */
#ifndef TCP_MSG_H
#define TCP_MSG_H

#include "tcp/net/fabric_impl.h"

/* msg_open.c */
int msg_find(struct fabric *fabric, const char *provider, const struct fabric_own_address *own);
int msg_open(struct fabric *fabric);
void msg_close(struct fabric *fabric);

/* msg_conn.c */
int msg_listen(struct fabric *fabric);
bool msg_read_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes);
int msg_connect(struct fabric_link *link);
void msg_end(struct fabric_link *link);
int msg_handle_events(struct fabric *fabric);
void msg_check_deadlines(struct fabric *fabric);

/* msg_io.c */
int msg_post_receives(struct fabric *fabric);
int msg_read_completions(struct fabric *fabric);
void msg_flush_waiting(struct fabric_link *link);

#endif
