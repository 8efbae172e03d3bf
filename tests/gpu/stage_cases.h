/* CUDA tensors on CPU backends: cases as in nccl_cases.h. */
#ifndef STAGE_CASES_H
#define STAGE_CASES_H

#include "nccl_cases.h"

#endif
