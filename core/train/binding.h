/* binding.h - a rank's part of its machine: its cores, and whether the memory is enough. */
#ifndef DPB_CORE_TRAIN_BINDING_H
#define DPB_CORE_TRAIN_BINDING_H

#include "train/experiment.h"

struct dpb_binding {
    uint32_t threads;    /* of this rank */
    uint32_t n_cores;    /* that all ranks of the machine are bound to; 0: they are not bound */
    bool oversubscribed; /* more processes or threads than cores: a warning says so */
};

/* Binds this process, and says whether waits may spin: dpb_world.may_spin. */
dpb_status dpb_bind(const struct dpb_experiment *experiment, struct dpb_binding *binding);
/* Whether the built experiment fits into this machine: before anybody takes memory for it. The
 * first rank of a machine looks. */
dpb_status dpb_bind_memory(const struct dpb_experiment *experiment);

#endif
