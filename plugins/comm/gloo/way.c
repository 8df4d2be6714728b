/* way.c - see way.h. */
#include "way.h"

#include <stddef.h>
#include <stdio.h>

#include "lib/strategy/strategy.h"
#include "shim.h"
#if DPB_HAVE_VERBS
#include "lib/verbs/port.h"
#endif

static const char *const transports[] = {"tcp", "ibverbs", NULL};
const char *const way_algorithms[] = {"ring", "bcube", "ring_chunked", "halving_doubling", NULL};

const struct dpb_option way_option_rows[] = {
    {.name = "transport",
     .type = DPB_OPT_CHOICE,
     .def = "tcp",
     .choices = transports,
     .offset = offsetof(struct gloo_options, transport),
     .help = "Gloo's transport; ibverbs: RDMA, for ring_chunked and halving_doubling alone"},
    {.name = "algorithm",
     .type = DPB_OPT_CHOICE,
     .def = "ring",
     .choices = way_algorithms,
     .offset = offsetof(struct gloo_options, algorithm),
     .help = "Gloo's all-reduce; gloo::allreduce takes ring by default"},
    {.name = "interface",
     .type = DPB_OPT_STRING,
     .def = "",
     .offset = offsetof(struct gloo_options, interface),
     .help = "network interface: a name, a network (10.0.0.0/8) or an address; default: loopback "
             "on one machine, else the one that leads out. With ibverbs the RDMA device's, or a "
             "list; default: any"},
    {.name = "device",
     .type = DPB_OPT_STRING,
     .def = "",
     .offset = offsetof(struct gloo_options, device),
     .help =
         "ibverbs: RDMA device, NAME or NAME:PORT; the ranks of a machine take the entries of a "
         "list (commas between) in turn; empty: the only one that fits"},
    {.name = "gid_index",
     .type = DPB_OPT_INT,
     .def = "-1",
     .min = -1,
     .max = 255,
     .offset = offsetof(struct gloo_options, gid_index),
     .help = "ibverbs: index of the own address in the port's table of GIDs; -1: that of the "
             "interface's address, RoCE v2 before v1"},
    {.name = NULL},
};

bool way_is_class(int algorithm)
{
    return algorithm == SHIM_RING_CHUNKED || algorithm == SHIM_HALVING_DOUBLING;
}

#if DPB_HAVE_VERBS
static const bool has_verbs = true;

/* Gloo opens the device by its name, so the port found here is closed again. */
static dpb_status find_rdma(const struct dpb_host *host, const struct gloo_options *given,
                            const struct dpb_comm_args *args, struct way *way)
{
    const struct port_wanted wanted = {.devices = given->device,
                                       .interfaces = given->interface,
                                       .gid_index = given->gid_index,
                                       .local_rank = strategy_local_rank(args)};
    struct port port = {0};
    DPB_TRY(port_open(host, &wanted, &port));
    way->port = port.number;
    way->gid_index = (int)port.gid.gid_index;
    snprintf(way->device, sizeof way->device, "%s", ibv_get_device_name(port.context->device));
    snprintf(way->text, sizeof way->text, "ibverbs (%s, %s)", port.name, port.address);
    port_close(&port);
    return DPB_OK;
}
#else
static const bool has_verbs = false;
#endif

dpb_status way_check(const struct dpb_host *host, const struct gloo_options *given)
{
    if (given->transport == SHIM_IBVERBS && !way_is_class(given->algorithm))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.algorithm = %s: Gloo has it for comm.transport = tcp alone; with "
                          "ibverbs take ring_chunked or halving_doubling",
                          way_algorithms[given->algorithm]);
    if (given->transport == SHIM_IBVERBS && !(shim_has_ibverbs && has_verbs))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.transport = ibverbs: %s was built without it; take tcp",
                          shim_has_ibverbs ? "dpbench" : "Gloo");
    if (given->transport == SHIM_IBVERBS)
        return DPB_OK;
    if (given->device[0] != '\0' || given->gid_index >= 0)
        return host->fail(DPB_UNSUPPORTED,
                          "comm.%s belongs to comm.transport = ibverbs; here it is tcp",
                          given->device[0] != '\0' ? "device" : "gid_index");
    return DPB_OK;
}

dpb_status way_find(const struct dpb_host *host, const struct gloo_options *given,
                    const struct dpb_comm_args *args, struct way *way)
{
#if DPB_HAVE_VERBS
    if (given->transport == SHIM_IBVERBS)
        return find_rdma(host, given, args, way);
#endif
    DPB_TRY(interface_find(host, given->interface, args->n_machines == 1, &way->interface));
    snprintf(way->text, sizeof way->text, "tcp (%s, %s)", way->interface.name,
             way->interface.address);
    return DPB_OK;
}
