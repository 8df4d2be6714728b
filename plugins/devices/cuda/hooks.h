/*
 * hooks.h - the hooks of dpb_device_ops that a program has (compile.c, pass.c, times.c, profile.c),
 * and the GPUs for `dpbench links` (links.c).
 */
#ifndef DPB_CUDA_HOOKS_H
#define DPB_CUDA_HOOKS_H

#include "device.h"

extern const struct dpb_device_links cuda_links;

uint64_t cuda_memory_needed(const void *options, const struct dpb_compile_args *args);
/* dpb_device_ops.bytes_moved, for a device with options only. */
dpb_status cuda_count(const struct device *device, const struct dpb_compile_args *args,
                      double *bytes);
dpb_status cuda_compile(void *device, const struct dpb_compile_args *args,
                        const struct dpb_device_memory *memory, void **program);
void cuda_release(void *program);
dpb_status cuda_forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                        const struct dpb_hooks *hooks, struct dpb_outcome *outcome);
dpb_status cuda_backward(void *program, const struct dpb_pass *pass, const struct dpb_hooks *hooks);
dpb_status cuda_finite(void *program, bool *finite);
dpb_status cuda_inspect(void *program, uint32_t node, double *activation, double *gradient);
dpb_status cuda_follow(void *program, struct dpb_event *event);
dpb_status cuda_drain(void *program);
bool cuda_times(void *program, struct dpb_device_times *times);
dpb_status cuda_profile(void *program, struct dpb_profile *profile);

#endif
