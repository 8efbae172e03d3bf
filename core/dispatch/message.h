/* Sends and receives like the group's last one: of the same dtype and number of elements, on a backend that takes them
 * as messages.  A program that sends many small messages sends nearly all of them alike.  What they have in common is
 * kept in a struct message_memo (call_memo.c), so that a call fills little more than its backend's request. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

/* Submit a message, as submit does for any operation.  work: where its Work goes; NULL if opts decide. */
int message_send(const tutti_tensor *tensor, int dst, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);
int message_receive(const tutti_tensor *tensor, int src, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);

#endif
