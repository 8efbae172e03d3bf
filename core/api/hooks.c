#include "api/hooks.h"

#include "dispatch/dispatch.h"
#include "dispatch/launch.h"
#include "dispatch/packing.h"
#include "dispatch/stage.h"
#include "group/deadline.h"
#include "group/drain.h"
#include "group/failure.h"
#include "group/group.h"
#include "group/notice.h"
#include "progress/work.h"

const struct engine_hooks library_hooks = {
    .check_deadlines = deadline_check,
    .dispatch_unblocked = launch_unblocked,
    .apply_reported = group_take_told,
    .fail_disowned = group_disowned,
    .fail_starved = group_starved,
    .drain_at_exit = drain_at_exit,
    .notified = notice_received,
    .resume = dispatch_compared,
    .part_ended = packing_unpack,
    .stage_ended = stage_ended,
    .call_back = work_call_back,
    .describe_failure = failure_describe,
    .end_failed = failure_end,
};
