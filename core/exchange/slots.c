/* slots.c - see slots.h. */
#include "exchange/slots.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "measure/account.h"
#include "plan/estimate.h"

enum { WAIT_US = 20 }; /* for the thread of the pump */

dpb_status dpb_slots_plan(struct dpb_exchange *exchange)
{
    const struct dpb_comm_plan *plan = &exchange->plan;
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_settings *settings = &experiment->settings;
    const uint64_t n =
        dpb_slots_elements(&exchange->layout, plan->bucket_elements, plan->gradient_slots);
    exchange->slots =
        (struct dpb_slots){.each = plan->gradient_slots > 0 && experiment->accumulate > 1};
    if (plan->gradient_slots == 0)
        return DPB_OK;
    if (!exchange->ops->taken ||
        plan->bucket_elements != dpb_slots_bucket(&exchange->layout, plan->bucket_elements))
        return dpb_fail(DPB_FAILED,
                        "comm '%s': its plan has gradient_slots; it needs the hook taken, and "
                        "bucket_elements that make whole pages",
                        settings->comm.name);
    if (dpb_experiment_arenas_on_device(experiment) || settings->comm.late > 0 ||
        (experiment->accumulate > 1 && !plan->keeps_sums) ||
        settings->run.precision == DPB_PRECISION_FP16)
        return dpb_fail(DPB_UNSUPPORTED,
                        "comm '%s': gradients in slots lie on the host, without comm.late and "
                        "fp16, and with run.accumulate owners keep sums (keeps_sums)",
                        settings->comm.name);
    if (n < exchange->layout.n_elements)
        exchange->slots.n = n / plan->bucket_elements;
    return DPB_OK;
}

/* ---- in a step ----------------------------------------------------------------------------- */

/* One look; it may block where the strategy has no thread of its own. */
static dpb_status move_on(struct dpb_exchange *exchange)
{
    if (!exchange->pump.running)
        return exchange->ops->progress(exchange->comm, DPB_FOREVER);
    if (dpb_events.poll(exchange->pump.idle)) /* before `end`: it has failed */
        return exchange->pump.status;
    usleep(WAIT_US);
    return DPB_OK;
}

dpb_status dpb_slots_await(struct dpb_exchange *exchange, uint64_t end)
{
    const uint64_t bucket = exchange->arenas.bucket_elements, n = exchange->slots.n;
    if (end <= n * bucket)
        return DPB_OK;
    const uint64_t needed = (end - 1) / bucket + 1 - n;
    const int64_t entered_ns = dpb_account_enter();
    dpb_status status = DPB_OK;
    while (status == DPB_OK && exchange->ops->taken(exchange->comm) < needed)
        status = move_on(exchange);
    return dpb_account_leave(entered_ns, status);
}

dpb_status dpb_slots_await_node(struct dpb_exchange *exchange, uint64_t frontier)
{
    return exchange->slots.n == 0
               ? DPB_OK
               : dpb_slots_await(exchange, dpb_slots_node_end(&exchange->layout, frontier));
}

void dpb_slots_clear_gaps(struct dpb_exchange *exchange, uint64_t frontier)
{
    const struct dpb_layout *layout = &exchange->layout;
    const size_t size = dpb_dtype_size(layout->gradient_type);
    uint32_t *t = &exchange->slots.next_tensor;
    for (; exchange->slots.n > 0 && *t < layout->n_tensors; ++*t) {
        const struct dpb_tensor *tensor = &layout->tensors[*t];
        const uint64_t begin = tensor->offset + tensor->n_elements;
        const uint64_t end = *t + 1 < layout->n_tensors ? tensor[1].offset : layout->n_elements;
        if (begin > frontier)
            return;
        memset((char *)exchange->gradients + begin * size, 0, (end - begin) * size);
    }
}
