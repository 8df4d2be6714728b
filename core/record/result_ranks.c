/* result_ranks.c - finite numbers of a result, and its ranks: see result_private.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "record/facts.h"
#include "record/gpus_report.h"
#include "record/load_report.h"
#include "record/result_private.h"

json_t *dpb_result_real(struct dpb_result_maker *maker, double value, const char *name)
{
    if (!isfinite(value) && maker->counting && maker->n_not_finite++ == 0)
        snprintf(maker->first_not_finite, sizeof maker->first_not_finite, "%s", name);
    return dpb_json_real(value);
}

json_t *dpb_result_breakdown(struct dpb_result_maker *maker, const struct dpb_breakdown *breakdown)
{
    json_t *json = json_object();
    for (size_t i = 0; i < DPB_BREAKDOWN; i++)
        json_object_set_new(json, dpb_breakdown_names[i],
                            dpb_result_real(maker, breakdown->parts[i], "breakdown_ns"));
    return json;
}

/* `name` is for the warning; times in nanoseconds. */
static json_t *times_to_json(struct dpb_result_maker *maker, const struct dpb_stats *times,
                             const char *name)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}",                 //
                     "mean", dpb_result_real(maker, times->mean, name),     //
                     "stddev", dpb_result_real(maker, times->stddev, name), //
                     "p10", dpb_result_real(maker, times->p10, name),       //
                     "median", dpb_result_real(maker, times->median, name), //
                     "p90", dpb_result_real(maker, times->p90, name),       //
                     "p99", dpb_result_real(maker, times->p99, name),       //
                     "max", dpb_result_real(maker, times->max, name));
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static json_t *cores_to_json(const struct dpb_journal *journal)
{
    if (journal->n_cores == 0)
        return json_null();
    json_t *cores = json_array();
    for (uint32_t i = 0; i < journal->n_cores && i < DPB_JOURNAL_CORES; i++)
        json_array_append_new(cores, json_integer(journal->cores[i]));
    return cores;
}

static json_t *memory_to_json(const struct dpb_journal *journal)
{
    return json_pack("{s:I, s:I, s:I, s:I}",                                    //
                     "weights_bytes", (json_int_t)journal->weights_bytes,       //
                     "gradients_bytes", (json_int_t)journal->gradients_bytes,   //
                     "optimizer_state_bytes", (json_int_t)journal->state_bytes, //
                     "scratch_bytes", (json_int_t)journal->scratch_bytes);
}

static json_t *tcp_to_json(const struct dpb_journal *journal)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < journal->n_tcp && i < DPB_TCP_TABLE; i++) {
        const struct dpb_tcp_peer *peer = &journal->tcp[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}",            //
                                        "peer", peer->address,                            //
                                        "connections", (json_int_t)peer->connections,     //
                                        "congested", (json_int_t)peer->congested,         //
                                        "segments", (json_int_t)peer->segments,           //
                                        "retransmitted", (json_int_t)peer->retransmitted, //
                                        "rtt_us", (json_int_t)peer->rtt_us,               //
                                        "window_segments", (json_int_t)peer->window_segments));
    }
    return list;
}

static json_t *rank_to_json(struct dpb_result_maker *maker, uint32_t rank)
{
    const struct dpb_journal *journal = maker->journals[rank];
    const struct dpb_status_page *page = dpb_board_page(maker->board, rank);
    char checksum[24], error[DPB_BOARD_TEXT];
    snprintf(checksum, sizeof checksum, "0x%016llx", (unsigned long long)journal->checksum);
    json_t *json = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I, s:I}",   //
                             "rank", (json_int_t)rank,                                    //
                             "machine", (json_int_t)page->machine,                        //
                             "role", page->role == DPB_SERVER ? "server" : "worker",      //
                             "host", page->host,                                          //
                             "pid", (json_int_t)page->pid,                                //
                             "threads", (json_int_t)journal->threads,                     //
                             "place_threads", (json_int_t)journal->place_threads,         //
                             "peak_memory_bytes", (json_int_t)journal->peak_memory_bytes, //
                             "checksum", checksum,                                        //
                             "dropped_samples", (json_int_t)journal->dropped_samples,     //
                             "dropped_spans", (json_int_t)journal->dropped_spans);
    json_object_set_new(json, "memory", memory_to_json(journal));
    json_object_set_new(json, "cores", cores_to_json(journal));
    json_object_set_new(json, "node_memory_bytes",
                        journal->node_bytes > 0 ? json_integer((json_int_t)journal->node_bytes)
                                                : json_null());
    json_object_set_new(json, "gpu", dpb_gpu_to_json(&journal->gpu));
    const char *sharing = dpb_sharing_name(&page->sharing);
    if (json_is_object(json_object_get(json, "gpu")))
        json_object_set_new(json_object_get(json, "gpu"), "sharing",
                            sharing ? json_string(sharing) : json_null());
    json_t *facts = dpb_facts_to_json(page);
    if (facts)
        json_object_set_new(json, "comm", facts);
    if (journal->n_tcp > 0)
        json_object_set_new(json, "tcp", tcp_to_json(journal));
    uint64_t n = dpb_journal_records(journal);
    /* Workers that are apart begin to time at steps of their own. */
    uint64_t from =
        maker->apart && rank < maker->n_workers ? journal->timed_from : maker->summary.warmup_steps;
    json_object_set_new(json, "steps", json_integer((json_int_t)(n > from ? n - from : 0)));
    json_object_set_new(json, "start_s", json_real((double)journal->start_ns / 1e9));
    const struct dpb_data_counts *data = &journal->data;
    if (data->bytes_read > 0)
        json_object_set_new(json, "data",
                            json_pack("{s:I, s:I, s:I}",                                //
                                      "bytes_read", (json_int_t)data->bytes_read,       //
                                      "bytes_decoded", (json_int_t)data->bytes_decoded, //
                                      "skipped_samples", (json_int_t)data->skipped));
    if (n > from) { /* a server that keeps no records has no times */
        struct dpb_stats times;
        struct dpb_breakdown breakdown;
        dpb_summary_of_rank(journal, from, &times, &breakdown);
        json_object_set_new(json, "step_ns", times_to_json(maker, &times, "ranks[].step_ns"));
        json_object_set_new(json, "breakdown_ns", dpb_result_breakdown(maker, &breakdown));
    }
    if (page->failed_ns != 0) {
        snprintf(error, sizeof error, "%.*s", (int)strnlen(page->error, sizeof page->error),
                 page->error);
        json_object_set_new(json, "error", dpb_json_string(error));
    }
    return json;
}

json_t *dpb_result_throttled(const struct dpb_result_maker *maker)
{
    bool told = false, throttled = false;
    for (uint32_t rank = 0; rank < maker->n_ranks; rank++) {
        const struct dpb_journal *journal = maker->journals[rank];
        if (!journal || !journal->gpu.last.known)
            continue;
        told = true;
        throttled |= dpb_gpu_throttled(&journal->gpu);
    }
    return told ? json_boolean(throttled) : json_null();
}

json_t *dpb_result_ranks(struct dpb_result_maker *maker)
{
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < maker->n_ranks; rank++)
        if (maker->journals[rank])
            json_array_append_new(list, rank_to_json(maker, rank));
    return list;
}
