/*
 * ring_tcp - replicated training, exchanged by a ring all-reduce over TCP.
 *
 * Every worker keeps weights and, unless sharded, optimizer state. Gradients go round a ring of the
 * workers, chunk by chunk: scatter-reduce, then all-gather (ring.h); then every rank updates
 * its weights. The way of a chunk from a gradient arena to the next one's is the kernel's copy out
 * and the kernel's copy in.
 *
 * Bytes moved per step and rank, W workers, M bytes of gradients: 2 (W - 1)/W M sent. With a codec
 * messages go round instead, m bytes a rank: to all ranks (gather.h), (W - 1) m; those of a
 * codec of two rounds are summed as gradients are (coded_sums.h), 2 (W - 1)/W m.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. JPDC 2009.
 */
#include "dpbench/plugin.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/ring/ring_strategy.h"

static const struct dpb_host *host;

struct ring_tcp_options {
    struct dpb_ring_options ring;
    struct dpb_tcp_options tcp;
};

static const struct dpb_option options[] = {
    DPB_RING_OPTION_ROWS(struct ring_tcp_options, NULL),
    DPB_SHARD_ALL_OPTION_ROW(struct ring_tcp_options, ring.shard),
    DPB_TCP_OPTION_ROWS(struct ring_tcp_options, NULL),
    {0}};

static dpb_status ring_tcp_open(const void *options_, const struct dpb_comm_args *args, void **comm)
{
    const struct ring_tcp_options *given = options_;
    struct dpb_mesh_transport *transport;
    DPB_TRY(dpb_mesh_tcp_create(host, &given->tcp, &transport));
    return dpb_ring_strategy_open(host, args, &given->ring, transport, comm);
}

static dpb_status ring_tcp_contract(const void *options_, const struct dpb_comm_args *args,
                                    struct dpb_contract *contract)
{
    const struct ring_tcp_options *given = options_;
    dpb_coded_contract(args, contract);
    DPB_TRY(dpb_ring_strategy_check(host, &given->ring, args));
    return args->n_workers > 1 ? dpb_tcp_check_port(host, &given->tcp, args->n_workers - 1)
                               : DPB_OK;
}

static const struct dpb_comm_ops ring_tcp_ops = {.open = ring_tcp_open,
                                                 .contract = ring_tcp_contract,
                                                 .collectives = DPB_RING_STRATEGY_COLLECTIVES,
                                                 DPB_RING_STRATEGY_HOOKS};

static const struct dpb_plugin ring_tcp = {
    DPB_PLUGIN_HEAD(COMM, ring_tcp_ops),
    .capabilities = DPB_RING_STRATEGY_CAPABILITIES | DPB_COMM_WHOLE_SHARDS,
    .name = "ring_tcp",
    .version = DPB_VERSION,
    .summary = "replicated, ring all-reduce over TCP: scatter-reduce, then all-gather",
    .options = options,
    .options_size = sizeof(struct ring_tcp_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &ring_tcp;
}
