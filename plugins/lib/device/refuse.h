/*
 * refuse.h - what every device refuses: calls of its hooks that device.h excludes. `device` is its
 * name in messages. DPB_OK: it may go on.
 */
#ifndef DPB_LIB_DEVICE_REFUSE_H
#define DPB_LIB_DEVICE_REFUSE_H

#include "dpbench/device.h"
#include "dpbench/host.h"

/* Batch, shape and type of the samples. Precisions are the device's matter. */
dpb_status dpb_refuse_compile(const struct dpb_host *host, const char *device,
                              const struct dpb_compile_args *args);
/* A pass of a program that was compiled with `args`. */
dpb_status dpb_refuse_pass(const struct dpb_host *host, const char *device,
                           const struct dpb_compile_args *args, const struct dpb_pass *pass,
                           const struct dpb_batch *batch);
/* Inspection of a node: the number is none of the model's, or the program keeps nothing for it. */
dpb_status dpb_refuse_inspect(const struct dpb_host *host, const char *device,
                              const struct dpb_compile_args *args, uint32_t node);
/* The message that inspection cannot show `what` of the node. */
dpb_status dpb_refuse_hidden(const struct dpb_host *host, const char *device, const char *what,
                             const struct dpb_node *node);

#endif
