/*
 * ring_verbs - replicated training, exchanged by a ring all-reduce over RDMA (InfiniBand or RoCE).
 *
 * Every worker keeps weights and, unless sharded, optimizer state. Gradients go round a ring of the
 * workers, chunk by chunk: scatter-reduce, then all-gather (ring.h); then every rank updates
 * its weights. The network card writes chunks out of one rank's gradient arena into the next one's
 * memory: partial sums into an inbox, sums to where they belong (lib/verbs/mesh_verbs.h). No
 * processor copies them.
 *
 * Bytes moved per step and rank, W workers, M bytes of gradients: 2 (W - 1)/W M sent. With a codec
 * messages go round instead, m bytes a rank: to all ranks (gather.h), (W - 1) m; those of a
 * codec of two rounds are summed as gradients are (coded_sums.h), 2 (W - 1)/W m.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. JPDC 2009.
 */
#include "dpbench/plugin.h"
#include "lib/ring/ring_strategy.h"
#include "lib/verbs/mesh_verbs.h"
#include "lib/verbs/port.h"

static const struct dpb_host *host;

struct ring_verbs_options {
    struct dpb_ring_options ring;
    struct verbs_options verbs;
};

static const struct dpb_option options[] = {
    DPB_RING_OPTION_ROWS(struct ring_verbs_options, NULL),
    DPB_SHARD_SLOTS_OPTION_ROW(struct ring_verbs_options, ring.shard),
    VERBS_OPTION_ROWS(struct ring_verbs_options, NULL),
    {"interface", DPB_OPT_STRING, NULL, "", 0, 0, NULL,
     offsetof(struct ring_verbs_options, verbs.interface),
     "network interface of the device: name, address or network as 10.9.0.0/24; a list as for "
     "comm.device; empty: any",
     NULL},
    {0}};

static dpb_status ring_verbs_open(const void *options_, const struct dpb_comm_args *args,
                                  void **comm)
{
    const struct ring_verbs_options *given = options_;
    struct dpb_mesh_transport *transport;
    DPB_TRY(mesh_verbs_create(host, &given->verbs, dpb_strategy_local_rank(args), &transport));
    return dpb_ring_strategy_open(host, args, &given->ring, transport, comm);
}

static dpb_status ring_verbs_contract(const void *options_, const struct dpb_comm_args *args,
                                      struct dpb_contract *contract)
{
    dpb_coded_contract(args, contract);
    return dpb_ring_strategy_check(host, options_, args);
}

static const struct dpb_comm_ops ring_verbs_ops = {
    .open = ring_verbs_open, .contract = ring_verbs_contract, DPB_RING_STRATEGY_HOOKS};

static const char *missing_here(void)
{
    static char text[512];
    return port_missing(text, sizeof text) ? text : NULL;
}

static const struct dpb_plugin ring_verbs = {
    DPB_PLUGIN_HEAD(COMM, ring_verbs_ops),
    .capabilities = DPB_RING_STRATEGY_CAPABILITIES,
    .name = "ring_verbs",
    .version = DPB_VERSION,
    .summary = "replicated, ring all-reduce over RDMA: scatter-reduce, then all-gather",
    .options = options,
    .options_size = sizeof(struct ring_verbs_options),
    .missing = missing_here,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &ring_verbs;
}
