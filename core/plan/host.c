/* host.c - the one table of functions that every plugin gets: see dpbench/host.h. */
#include "base/log.h"
#include "base/vec.h"
#include "dpbench/plugin.h"
#include "measure/account.h"
#include "plan/experiment.h"
#include "optim/optimizer.h"
#include "world/world.h"

const struct dpb_host dpb_host = {
    .struct_size = sizeof(struct dpb_host),
    .abi = DPB_ABI,
    .fail = dpb_fail,
    .warn = dpb_warn,
    .log = dpb_log,
    .now_ns = dpb_now_ns,
    .alloc = dpb_alloc,
    .release = dpb_release,
    .span = dpb_account_span,
    .count_bytes = dpb_account_bytes,
    .age = dpb_account_age,
    .coding = dpb_account_coding,
    .note = dpb_world_note,
    .vec = &dpb_vec,
    .optimizer = &dpb_optimizers,
    .flag = &dpb_flags,
    .event = &dpb_events,
    .store = &dpb_store,
    .connect = dpb_world_connect,
    .poll = dpb_world_poll,
    .patience = dpb_world_patience,
    .report = dpb_world_report,
};
