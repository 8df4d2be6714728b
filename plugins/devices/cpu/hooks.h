/*
 * hooks.h - the hooks of dpb_device_ops that a program has (compile.c, pass.c, profile.c), and what
 * this processor can do (limits.c).
 */
#ifndef DPB_CPU_HOOKS_H
#define DPB_CPU_HOOKS_H

#include "program.h"

/* Sets the calling thread's number of compute threads: OpenMP keeps one for each thread. */
void cpu_use_threads(uint32_t threads);

uint64_t cpu_memory_needed(const void *options, const struct dpb_compile_args *args);
dpb_status cpu_compile(void *device, const struct dpb_compile_args *args,
                       const struct dpb_device_memory *memory, void **program);
void cpu_release(void *program);
dpb_status cpu_forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                       const struct dpb_hooks *hooks, struct dpb_outcome *outcome);
dpb_status cpu_backward(void *program, const struct dpb_pass *pass, const struct dpb_hooks *hooks);
dpb_status cpu_inspect(void *program, uint32_t node, double *activation, double *gradient);
dpb_status cpu_profile(void *program, struct dpb_profile *profile);

/* Whether the processor multiplies matrices of bf16 (AMX). */
bool cpu_has_tiles(void);
dpb_status cpu_measure_limits(uint32_t threads, struct dpb_profile_limits *limits);

#endif
