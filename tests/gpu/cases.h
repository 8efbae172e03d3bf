/* Cases for CUDA tensors, written once: they run on a GPU (run_cases.c, ranks are processes) and on the stand-ins of
 * tests/fakes (tests/conformance, ranks are threads).  A case returns 0, or the line of the failed check. */
#ifndef GPU_CASES_H
#define GPU_CASES_H

#include "expect.h"
#include "gpu/device_tensors.h"

enum { CASES_RANKS = 16 };

typedef int case_body(tutti_group *group, int rank, int size);
typedef case_body *case_fn;

struct device_case {
    const char *name;
    case_fn fn;
};

/* Tables that end with an entry without a name: for the nccl backend, for staging, and faults. */
extern const struct device_case nccl_cases[], stage_cases[], fault_cases[];

/* nccl_cases.c */
case_body case_reductions, case_bool, case_counts, case_moves, case_uneven, case_messages, case_groups, case_refused;

/* stream_cases.c */
case_body case_streams, case_crowded, case_crowded_reversed, case_duration, case_capture, case_capture_legacy,
    case_coalesced;

/* stage_cases.c */
case_body case_bitwise, case_beyond_nccl, case_large, case_in_order, case_staged_streams, case_message_order,
    case_mixed, case_coalesced_mixed, case_staged_refused;

/* fault_cases.c */
case_body case_late_in_stream, case_late_async, case_late_coalesced, case_killed, case_full_stream,
    case_full_stream_late, case_many;

/* ---- what several cases use ----------------------------------------------------------------------------------- */

/* Runs all reductions with one dtype and reduce op. */
int one_reduction(tutti_group *group, int rank, int size, tutti_dtype dtype, tutti_reduce_op op, int64_t n);

/* Checks that host memory, and a tensor of another device, are refused. */
int foreign_memory(tutti_group *group, tutti_tensor x, const tutti_opts *opts);

/* Checks that an op of the program is refused for a CUDA tensor. */
int own_op_is_refused(tutti_group *group, tutti_tensor x, const tutti_opts *opts);

/* Checks that streams of another kind are refused: CU_STREAM_PER_THREAD, and a stream of a device that no rank has, if
 * there is one. */
int foreign_stream(tutti_group *group, tutti_tensor x, int size);

/* Host functions for a stream: one sleeps for some milliseconds (an int), the other waits until a gate is open. */
void sleep_here(void *ms);

struct gate {
    bool open;
};

void wait_at(void *argument);

/* How cases begin a capture.  By default in the strictest mode, in which another thread's wait would end the capture
 * if ranks are threads. */
extern int capture_mode;

#endif
