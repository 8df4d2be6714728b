/*
 * refuse.h - refusals common to all devices: calls of hooks that device.h excludes. `device` is the
 * device's name in messages. DPB_OK: the call is allowed.
 */
#ifndef DPB_LIB_DEVICE_REFUSE_H
#define DPB_LIB_DEVICE_REFUSE_H

#include "dpbench/device.h"
#include "dpbench/host.h"

/* Checks batch, shape and type of the samples. The device itself checks precisions. */
dpb_status dpb_refuse_compile(const struct dpb_host *host, const char *device,
                              const struct dpb_compile_args *args);
/* Checks a pass of a program that was compiled with `args`. */
dpb_status dpb_refuse_pass(const struct dpb_host *host, const char *device,
                           const struct dpb_compile_args *args, const struct dpb_pass *pass,
                           const struct dpb_batch *batch);
/* Refuses inspection if the model has no node of this number, or the program keeps no values. */
dpb_status dpb_refuse_inspect(const struct dpb_host *host, const char *device,
                              const struct dpb_compile_args *args, uint32_t node);
/* Fails with the message that inspection cannot show `what` of the node. */
dpb_status dpb_refuse_hidden(const struct dpb_host *host, const char *device, const char *what,
                             const struct dpb_node *node);

#endif
