/* wrap.h - for plugins that put hooks of their own around another strategy's. */
#ifndef DPB_TESTS_PLUGINS_WRAP_H
#define DPB_TESTS_PLUGINS_WRAP_H

#include "dpbench/comm.h"

/* `plan` of the wrapped strategy. *inner becomes the table of hooks that its plan chose; core goes
 * on with the wrapper's. */
static inline dpb_status wrap_plan(const struct dpb_comm_ops **inner, void *comm,
                                   const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    const struct dpb_comm_ops *own = want->ops;
    want->ops = *inner;
    dpb_status status = (*inner)->plan(comm, layout, want);
    *inner = want->ops;
    want->ops = own;
    return status;
}

#endif
