#include "hooks.h"

#include "begin.h"
#include "coalesce.h"
#include "deadline.h"
#include "drain.h"
#include "failure.h"
#include "group.h"
#include "notice.h"
#include "stage.h"
#include "submit.h"

const struct engine_hooks library_hooks = {
    .check_deadlines = deadline_check,
    .begin_unblocked = submit_unblocked,
    .take_told = group_take_told,
    .disowned = group_disowned,
    .drain_at_exit = drain_at_exit,
    .notified = notice_received,
    .resume = begin_compared,
    .part_ended = coalesce_part_ended,
    .stage_ended = stage_ended,
    .describe_failure = failure_describe,
    .end_failed = failure_end,
};
