/*
 * vec.h - arithmetic on ranges of host memory: the functions behind dpb_vec_ops of host.h.
 */
#ifndef DPB_CORE_BASE_VEC_H
#define DPB_CORE_BASE_VEC_H

#include "dpbench/host.h"

extern const struct dpb_vec_ops dpb_vec;

#endif
