/* Sends and receives like the group's last one (message_memo.h), on a backend that takes them as messages.  Such a call
 * fills little more than its backend's request: the rest of its Work is copied from the memo, once it is needed. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

struct engine;
struct tutti_group;

/* Submit a message, as submit does for any operation.  work: where its Work goes; NULL if opts decide. */
int message_send(const tutti_tensor *tensor, int dst, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);
int message_receive(const tutti_tensor *tensor, int src, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);

/* Issues an async message of a batch.  Returns what submit_at_once does.  UNSUPPORTED: it is not like the last one, and
 * nothing has begun.  Lock held. */
int message_issue(struct tutti_group *group, bool sends, const tutti_tensor *tensor, int peer, const tutti_opts *opts,
                  tutti_work **work);

/* Hands deferred receives to their backends: engine_hooks.issue_deferred. */
void message_issue_deferred(struct engine *engine, bool waits);

#endif
