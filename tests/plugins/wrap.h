/* wrap.h - for plugins that put hooks of their own around another strategy's. */
#ifndef DPB_TESTS_PLUGINS_WRAP_H
#define DPB_TESTS_PLUGINS_WRAP_H

#include <stdlib.h>
#include <string.h>

#include "dpbench/comm.h"
#include "dpbench/option.h"

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

/* The n rows of the wrapper's own, and the wrapped strategy's, whose options begin at `at` of the
 * wrapper's. They live as long as the process. */
static inline const struct dpb_option *wrap_rows(const struct dpb_option *own, size_t n_own,
                                                 const struct dpb_option *inner, size_t at)
{
    size_t n = 0;
    while (inner && inner[n].name)
        n++;
    struct dpb_option *rows = calloc(n_own + n + 1, sizeof *rows);
    if (!rows)
        abort();
    memcpy(rows, own, n_own * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        rows[n_own + i] = inner[i];
        rows[n_own + i].offset += at;
    }
    return rows;
}

#endif
