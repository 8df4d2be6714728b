/*
 * engine.h - the worker's device, and the program that is compiled for it.
 */
#ifndef DPB_CORE_LOOP_ENGINE_H
#define DPB_CORE_LOOP_ENGINE_H

#include "plan/experiment.h"

/* Zeroed: there is none, as on servers. */
struct dpb_engine {
    const struct dpb_device_ops *ops;
    void *device, *program;
    bool weights_changed; /* since its last forward */
};

/* Opens the device; compiles nothing. *arenas: the device's own memory, if it has any; else
 * unchanged. */
dpb_status dpb_engine_open(const struct dpb_experiment *experiment, uint32_t threads,
                           struct dpb_engine *engine, struct dpb_device_arenas *arenas);
void dpb_engine_close(struct dpb_engine *engine); /* accepts zeroed ones */

#endif
