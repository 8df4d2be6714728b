/* emulated_run.c - see emulated_run.h. */
#include "study/predict/emulated_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"

/* A run is as predicted within this factor of the band. */
static const double tolerated = 1.15;

bool dpb_emulated_is(const json_t *result)
{
    return dpb_json_is(result, "config.device.name.value", "emulated") &&
           dpb_json_number(result, "world.workers") > 1;
}

/* ---- the request ---------------------------------------------------------------------------- */

/* The most workers of a machine. */
static uint32_t per_machine(const json_t *result)
{
    const json_t *ranks = json_object_get(result, "ranks");
    uint32_t most = 1;
    dpb_each_item(ranks, i, one) {
        uint32_t n = 0;
        dpb_each_item(ranks, k, other) {
            n += dpb_json_is(other, "role", "worker") &&
                 dpb_json_same(json_object_get(one, "machine"), json_object_get(other, "machine"));
        }
        most = n > most ? n : most;
    }
    return most;
}

static dpb_status check(const json_t *result, const struct dpb_predict_request *request)
{
    const char *codec = dpb_json_text(result, "config.comm.codec.value", "none");
    const double workers = dpb_json_number(result, "world.workers"),
                 servers = dpb_json_number(result, "world.servers");
    if (request->n_workers + request->n_buckets + request->n_batches + request->n_strategies > 0 ||
        request->per_machine != 1 || request->servers > 0)
        return dpb_fail(DPB_USAGE,
                        "%s: predict compares a run on device emulated with a prediction of that "
                        "very run: leave --workers, --buckets, --batches, --strategies, "
                        "--per-machine and --servers out, or predict from its profile",
                        request->path);
    if (!dpb_json_is(result, "status", "ok") || !(workers <= DPB_PREDICT_WORKERS) ||
        !(servers >= 0 && servers <= DPB_PREDICT_WORKERS) ||
        !(dpb_json_number(result, "config.comm.bucket.value") > 0))
        return dpb_fail(DPB_USAGE, "%s: the run did not end well, or lacks world or comm.bucket",
                        request->path);
    if (dpb_json_number(result, "batch.accumulate") != 1 ||
        !dpb_json_is(result, "config.comm.gradient.value", "auto") ||
        (!dpb_json_is(result, "config.run.delay.value", "none") && !request->delay) ||
        (strcmp(codec, "none") != 0 && (!request->codec || strcmp(codec, request->codec) != 0)))
        return dpb_fail(DPB_USAGE,
                        "%s: predict knows runs with run.accumulate = 1 and comm.gradient = auto; "
                        "repeat run.delay = %s as --delay, and comm.codec = %s as --codec "
                        "NAME,COMM.json",
                        request->path, dpb_json_text(result, "config.run.delay.value", "none"),
                        codec);
    return DPB_OK;
}

dpb_status dpb_emulated_request(const json_t *result, struct dpb_predict_request *request,
                                char strategy[DPB_EMULATED_STRATEGY])
{
    const json_t *hosts = dpb_json_at(result, "world.hosts");
    DPB_TRY(check(result, request));
    if (request->n_links == 0 && json_is_object(hosts)) {
        request->links[request->n_links++] = (struct dpb_predict_link){
            .name = "of dpbench hosts",
            .exact = true,
            .cost = {.bytes_per_s = dpb_json_number(hosts, "rate_bytes_per_s"),
                     .latency_s = dpb_json_number(hosts, "latency_ns") / 1e9}};
        const double uplink = dpb_json_number(hosts, "uplink");
        request->uplink = uplink > 0 ? uplink : request->uplink;
    }
    if (request->n_links != 1 || !(request->links[0].cost.bytes_per_s > 0) ||
        !(request->links[0].cost.latency_s >= 0))
        return dpb_fail(DPB_USAGE,
                        "%s: over which link did the run go? It was not under `dpbench hosts`: "
                        "give one --link, --links or --comm",
                        request->path);
    snprintf(strategy, DPB_EMULATED_STRATEGY, "%.80s%s",
             dpb_json_text(result, "strategy.name", "?"),
             dpb_json_is(result, "config.comm.shard.value", "optimizer") ? "/shard" : "");
    request->strategies[0] = strategy;
    request->n_strategies = request->n_workers = request->n_buckets = 1;
    request->workers[0] = dpb_json_number(result, "world.workers");
    request->buckets[0] = dpb_json_number(result, "config.comm.bucket.value");
    request->servers = (uint32_t)dpb_json_number(result, "world.servers");
    request->per_machine = per_machine(result);
    return DPB_OK;
}

/* ---- what the device emulates --------------------------------------------------------------- */

static double option(const json_t *result, const char *path, double otherwise)
{
    const double value = dpb_json_number(result, path);
    return value > 0 ? value : otherwise;
}

void dpb_emulated_shape(const json_t *result, struct dpb_predict_worker *worker)
{
    struct dpb_measured *m = &worker->measured;
    const double n = option(result, "config.device.inside.value", 1);
    const double slower = option(result, "config.device.overlap_slowdown.value", 1);
    const double ring_s =
        2 * (n - 1) / n / option(result, "config.device.inside_link.value", INFINITY);
    const double copy_s = dpb_json_true(result, "config.device.gpu_direct.value")
                              ? 0
                              : option(result, "config.device.host_link_workers.value", 1) /
                                    option(result, "config.device.host_link.value", INFINITY);
    const double forward_s = m->compute_s - m->backward_s,
                 upload_s = copy_s * m->ready_bytes[m->n_ready - 1];
    double at_s = forward_s, summed_s = forward_s, copied_s = forward_s, last_s = forward_s,
           last_bytes = 0;
    for (size_t i = 0; i < m->n_ready; i++) {
        const double bytes = m->ready_bytes[i] - last_bytes;
        at_s += (worker->ready_s[i] - last_s) * (i > 0 ? slower : 1);
        summed_s = fmax(summed_s, at_s) + ring_s * bytes;
        copied_s = fmax(copied_s, summed_s) + copy_s * bytes;
        last_s = worker->ready_s[i];
        last_bytes = m->ready_bytes[i];
        worker->ready_s[i] = upload_s + copied_s;
    }
    const double end_s = fmax(copied_s, at_s + (m->compute_s - last_s) * slower);
    m->compute_s = upload_s + end_s;
    m->backward_s = end_s - forward_s;
    /* The optimizer runs on the host; with shards a worker updates its own. */
    const double optimizer_s = dpb_json_number(result, "timing.breakdown_ns.optimizer") / 1e9;
    const bool shares = dpb_json_is(result, "strategy.name", "ps_cpu") ||
                        dpb_json_is(result, "config.comm.shard.value", "optimizer");
    m->update_s = optimizer_s >= 0 ? optimizer_s : 0;
    m->update_s *= shares ? dpb_json_number(result, "world.workers") : 1;
    worker->update = "measured";
    worker->batch *= n;
    worker->step_s = m->compute_s + m->update_s;
    worker->wide.compute_s = m->compute_s;
    worker->wide.backward_s = m->backward_s;
    worker->wide.update_s = m->update_s;
}

/* ---- the verdict ---------------------------------------------------------------------------- */

static bool was_late(const json_t *result)
{
    return dpb_json_true(result, "emulated.late") || dpb_json_true(result, "load.disturbed") ||
           dpb_json_true(result, "world.oversubscribed");
}

static const char *verdict_of(const json_t *result, const struct dpb_predict_worker *worker,
                              const json_t *row, double measured_ns)
{
    const double computed_ns = dpb_json_number(result, "timing.breakdown_ns.forward") +
                               dpb_json_number(result, "timing.breakdown_ns.backward");
    if (measured_ns < dpb_json_number(row, "low_ns") / tolerated)
        return "faster than predicted: the link or the profile is not the run's";
    if (!(measured_ns > dpb_json_number(row, "high_ns") * tolerated))
        return "as predicted";
    if (computed_ns - worker->measured.compute_s * 1e9 >
        (measured_ns - dpb_json_number(row, "step_ns")) / 2)
        return "the device, which did not keep the profile's times: neither network nor strategy";
    if (was_late(result))
        return "the network or the machine, which had too few cores or other work, not the "
               "strategy";
    return "the network, not the strategy";
}

json_t *dpb_emulated_verdict(const json_t *result, const struct dpb_predict_worker *worker,
                             const json_t *row)
{
    const json_t *steps = dpb_json_at(result, "timing.step_ns");
    double measured_ns = 0;
    dpb_each_item(steps, i, step) {
        measured_ns += json_number_value(step) / (double)json_array_size(steps);
    }
    return json_pack("{s:f, s:o, s:s}", "measured_ns", measured_ns, "predicted_ns",
                     dpb_json_real(dpb_json_number(row, "step_ns")), "verdict",
                     measured_ns > 0 ? verdict_of(result, worker, row, measured_ns)
                                     : "no conclusion: the run has no timed step");
}
