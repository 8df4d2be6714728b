/* adapter.c - see adapter.h. */
#include "lib/verbs/adapter.h"

#include <errno.h>
#include <fcntl.h>

#include "lib/verbs/failure.h"

/* With comm.poll: a queue that was empty for so long is slept for. */
#define POLL_NS INT64_C(10000000)

/* ---- making and ending --------------------------------------------------------------------- */

dpb_status adapter_open(const struct dpb_host *host, const struct verbs_options *options,
                        uint32_t local_rank, struct adapter *adapter)
{
    const struct port_wanted wanted = {.devices = options->device,
                                       .interfaces = options->interface,
                                       .gid_index = options->gid_index,
                                       .local_rank = local_rank};
    *adapter = (struct adapter){.host = host, .options = *options};
    return port_open(host, &wanted, &adapter->port);
}

static dpb_status set_nonblocking(const struct adapter *adapter, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return adapter->host->fail(DPB_IO, "cannot set up the events of %s: %s", adapter->port.name,
                                   strerror(errno));
    return DPB_OK;
}

dpb_status adapter_make_queue(struct adapter *adapter, uint32_t n_completions)
{
    struct ibv_context *context = adapter->port.context;
    adapter->domain = ibv_alloc_pd(context);
    adapter->channel = adapter->domain ? ibv_create_comp_channel(context) : NULL;
    if (adapter->channel)
        adapter->completions =
            ibv_create_cq(context, (int)n_completions, NULL, adapter->channel, 0);
    if (!adapter->completions)
        return adapter->host->fail(DPB_IO, "cannot make a queue of %u completions on %s: %s",
                                   n_completions, adapter->port.name, strerror(errno));
    DPB_TRY(set_nonblocking(adapter, adapter->channel->fd));
    return set_nonblocking(adapter, context->async_fd);
}

dpb_status adapter_register(const struct adapter *adapter, const char *what, void *memory,
                            uint64_t bytes, struct ibv_mr **region)
{
    *region = ibv_reg_mr(adapter->domain, memory, bytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return *region ? DPB_OK : failure_of_registration(adapter->host, what, bytes, errno);
}

void adapter_deregister(struct ibv_mr *region)
{
    if (region)
        ibv_dereg_mr(region);
}

void adapter_close(struct adapter *adapter)
{
    if (adapter->completions)
        ibv_destroy_cq(adapter->completions);
    if (adapter->channel)
        ibv_destroy_comp_channel(adapter->channel);
    if (adapter->domain)
        ibv_dealloc_pd(adapter->domain);
    port_close(&adapter->port);
}

/* ---- completions --------------------------------------------------------------------------- */

dpb_status adapter_poll(struct adapter *adapter, bool *some)
{
    *some = adapter->next_held < adapter->n_held;
    if (*some)
        return DPB_OK;
    adapter->next_held = 0;
    adapter->n_held = ibv_poll_cq(adapter->completions, ADAPTER_BATCH, adapter->held);
    *some = adapter->n_held > 0;
    if (adapter->n_held >= 0)
        return DPB_OK;
    adapter->n_held = 0;
    return adapter->host->fail(DPB_IO, "the completions of %s cannot be polled",
                               adapter->port.name);
}

const struct ibv_wc *adapter_take(struct adapter *adapter)
{
    return &adapter->held[adapter->next_held++];
}

/* ---- waiting ------------------------------------------------------------------------------- */

dpb_status adapter_arm(struct adapter *adapter, const struct dpb_doorbell *doorbell,
                       struct pollfd fds[ADAPTER_FDS], bool *some)
{
    fds[ADAPTER_COMPLETION] = (struct pollfd){.fd = adapter->channel->fd, .events = POLLIN};
    fds[ADAPTER_EVENT] = (struct pollfd){.fd = adapter->port.context->async_fd, .events = POLLIN};
    int64_t until_ns = adapter->host->now_ns() + POLL_NS;
    DPB_TRY(adapter_poll(adapter, some));
    while (adapter->options.poll && !*some && !dpb_doorbell_was_rung(doorbell) &&
           adapter->host->now_ns() < until_ns)
        DPB_TRY(adapter_poll(adapter, some));
    if (*some)
        return DPB_OK;
    /* Only a completion after the request makes an event; a poll has to find earlier ones. */
    int error = ibv_req_notify_cq(adapter->completions, 0);
    if (error != 0)
        return adapter->host->fail(DPB_IO, "cannot ask %s for an event: %s", adapter->port.name,
                                   strerror(error));
    return adapter_poll(adapter, some);
}

static dpb_status take_device_event(struct adapter *adapter)
{
    struct ibv_async_event event;
    if (ibv_get_async_event(adapter->port.context, &event) != 0)
        return DPB_OK; /* there is none */
    dpb_status status = failure_of_event(adapter->host, &adapter->port, &event);
    ibv_ack_async_event(&event);
    return status;
}

dpb_status adapter_woken(struct adapter *adapter, const struct pollfd fds[ADAPTER_FDS])
{
    struct ibv_cq *completions;
    void *context;
    if (fds[ADAPTER_COMPLETION].revents != 0 &&
        ibv_get_cq_event(adapter->channel, &completions, &context) == 0)
        ibv_ack_cq_events(completions, 1);
    return fds[ADAPTER_EVENT].revents != 0 ? take_device_event(adapter) : DPB_OK;
}
