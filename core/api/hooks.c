#include "api/hooks.h"

#include "dispatch/dispatch.h"
#include "dispatch/launch.h"
#include "dispatch/message.h"
#include "dispatch/packing.h"
#include "dispatch/stage.h"
#include "group/backend_events.h"
#include "group/creation.h"
#include "group/deadline.h"
#include "group/drain.h"
#include "group/failure.h"
#include "group/group_fail.h"
#include "group/host_services.h"
#include "progress/work.h"

const struct engine_hooks library_hooks = {
    .host = &host_services,
    .check_deadlines = deadline_check,
    .dispatch_unblocked = launch_unblocked,
    .apply_reported = group_fail_apply_reported,
    .fail_disowned = group_fail_disowned,
    .fail_starved = group_fail_starved,
    .group_failed = creation_parent_failed,
    .drain_at_exit = drain_at_exit,
    .notified = backend_events_notified,
    .issue_deferred = message_issue_deferred,
    .resume = dispatch_compared,
    .part_ended = packing_unpack,
    .stage_ended = stage_ended,
    .call_back = work_call_back,
    .describe_failure = failure_describe,
    .end_failed = failure_end,
};
