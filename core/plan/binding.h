/* binding.h - a rank's part of its machine: its cores, and whether the memory is enough. */
#ifndef DPB_CORE_PLAN_BINDING_H
#define DPB_CORE_PLAN_BINDING_H

#include "machine/cores.h"
#include "plan/experiment.h"
#include "world/hello.h"

struct dpb_binding {
    uint32_t threads;       /* of this rank */
    uint32_t place_threads; /* of one learner alone in its place */
    uint32_t n_cores;       /* of all ranks of the machine (dpb_cores_share.n_all); 0: not bound */
    bool oversubscribed;    /* more processes or threads than cores: a warning says so */
};

/* How the ranks of `place` divide its cores. */
struct dpb_cores_job dpb_binding_job(const struct dpb_experiment *experiment,
                                     const struct dpb_seat *place);
/* Binds this process, and sets dpb_world.may_spin: whether waits may spin. */
dpb_status dpb_bind(const struct dpb_experiment *experiment, struct dpb_binding *binding);
/* Checks that the built experiment fits into this machine, before any rank takes memory for it.
 * Only the first rank of a machine checks. */
dpb_status dpb_bind_memory(const struct dpb_experiment *experiment);

#endif
