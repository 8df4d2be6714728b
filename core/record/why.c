/* why.c - see why.h. */
#include "record/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"
#include "record/summary.h"

/* A worker's own parts are the first four of dpb_breakdown_names, up to backward. */
enum { DATA, OWN_PARTS = 4 };

/* ---- numbers ------------------------------------------------------------------------------- */

/* A worker's timed records, and means of them. */
struct worker {
    const struct dpb_record *records;
    uint64_t n;
    double part[OWN_PARTS], own, optimizer, step;
    uint64_t n_last; /* steps in which it was last */
};

struct why {
    const struct dpb_why_args *args;
    struct worker *workers; /* @owned */
    double *x;              /* @owned: a number for each step */
    uint64_t *last;         /* @owned: by step, the worker that was last */
    double step_ns;         /* mean of all workers */
};

static double own_of(const struct dpb_record *record)
{
    int64_t sum_ns = 0;
    for (size_t part = 0; part < OWN_PARTS; part++)
        sum_ns += dpb_record_part(record, part);
    return (double)sum_ns;
}

static void find_means(struct worker *worker)
{
    for (uint64_t k = 0; k < worker->n; k++) {
        const struct dpb_record *record = &worker->records[k];
        for (size_t part = 0; part < OWN_PARTS; part++)
            worker->part[part] += (double)dpb_record_part(record, part) / (double)worker->n;
        worker->own += own_of(record) / (double)worker->n;
        worker->optimizer += (double)record->optimizer_ns / (double)worker->n;
        worker->step += (double)record->step_ns / (double)worker->n;
    }
}

static void find_last(struct why *why)
{
    for (uint64_t k = 0; k < why->args->n_steps; k++) {
        uint64_t last = 0;
        for (uint32_t w = 1; w < why->args->n_workers; w++)
            if (own_of(&why->workers[w].records[k]) > own_of(&why->workers[last].records[k]))
                last = w;
        why->last[k] = last;
        why->workers[last].n_last++;
    }
}

/* Puts the mean of n numbers and the lower end of its 95 % interval into `json`, and whether this
 * decides a statement about steps of `step_ns`. */
static void put_measured(const double *x, uint64_t n, const char *name, double step_ns,
                         json_t *json)
{
    char name_of_low[64];
    double sum = 0, freedom;
    for (uint64_t k = 0; k < n; k++)
        sum += x[k];
    const double mean = sum / (double)n, error = dpb_block_error(x, n, &freedom);
    const double low = isfinite(error) ? mean - dpb_student(freedom) * error : NAN;
    snprintf(name_of_low, sizeof name_of_low, "%s_low_ns", name);
    json_object_set_new(json, name_of_low, dpb_json_real(low));
    snprintf(name_of_low, sizeof name_of_low, "%s_ns", name);
    json_object_set_new(json, name_of_low, dpb_json_real(mean));
    json_object_set_new(json, "decided", json_boolean(low > DPB_MARGIN * step_ns));
}

/* The mean over all workers but one. */
static double part_of_others(const struct why *why, uint32_t except, int part)
{
    double sum = 0;
    for (uint32_t w = 0; w < why->args->n_workers; w++)
        sum += w != except ? why->workers[w].part[part] : 0;
    return sum / (why->args->n_workers - 1);
}

/* Null where there is no other worker to wait. */
static json_t *last_to_json(struct why *why)
{
    const struct dpb_why_args *args = why->args;
    uint32_t slow = 0;
    int part = 0;
    if (args->apart || args->n_workers < 2)
        return json_null();
    json_t *shares = json_array();
    for (uint32_t w = 0; w < args->n_workers; w++) {
        json_array_append_new(shares,
                              json_real((double)why->workers[w].n_last / (double)args->n_steps));
        slow = why->workers[w].own > why->workers[slow].own ? w : slow;
    }
    for (int i = 1; i < OWN_PARTS; i++)
        if (why->workers[slow].part[i] - part_of_others(why, slow, i) >
            why->workers[slow].part[part] - part_of_others(why, slow, part))
            part = i;
    for (uint64_t k = 0; k < args->n_steps; k++) {
        double others = 0;
        for (uint32_t w = 0; w < args->n_workers; w++)
            others += w != slow ? own_of(&why->workers[w].records[k]) : 0;
        why->x[k] = own_of(&why->workers[slow].records[k]) - others / (args->n_workers - 1);
    }
    json_t *json =
        json_pack("{s:I, s:o, s:s, s:f, s:f}", "rank", (json_int_t)slow, "shares", shares, "part",
                  dpb_breakdown_names[part], "part_ns", why->workers[slow].part[part],
                  "others_part_ns", part_of_others(why, slow, part));
    put_measured(why->x, args->n_steps, "behind", why->step_ns, json);
    return json;
}

static json_t *data_to_json(struct why *why)
{
    uint32_t rank = 0;
    for (uint32_t w = 1; w < why->args->n_workers; w++)
        if (why->workers[w].part[DATA] > why->workers[rank].part[DATA])
            rank = w;
    const struct worker *worker = &why->workers[rank];
    for (uint64_t k = 0; k < worker->n; k++)
        why->x[k] = (double)dpb_record_part(&worker->records[k], DATA);
    json_t *json =
        json_pack("{s:I, s:o, s:f}", "rank", (json_int_t)rank, "samples_per_s",
                  dpb_json_real(why->args->samples * 1e9 / worker->step), "step_ns", worker->step);
    put_measured(why->x, worker->n, "wait", worker->step, json);
    return json;
}

/* The exchange of the last worker of each step. *exposed_ns, *communication_ns: its means. */
static json_t *exchange_to_json(struct why *why, double *exposed_ns, double *communication_ns)
{
    const uint64_t n = why->args->n_steps;
    double bytes = 0;
    *exposed_ns = *communication_ns = 0;
    for (uint64_t k = 0; k < n; k++) {
        const struct dpb_record *record = &why->workers[why->last[k]].records[k];
        why->x[k] = (double)record->comm_exposed_ns;
        *exposed_ns += why->x[k] / (double)n;
        *communication_ns += (why->x[k] + (double)record->comm_hidden_ns) / (double)n;
        bytes += (double)record->comm_bytes / (double)n;
    }
    json_t *json =
        json_pack("{s:f, s:f, s:o}", "communication_ns", *communication_ns, "bytes", bytes,
                  "bytes_per_s", dpb_json_real(bytes > 0 ? bytes * 1e9 / *communication_ns : NAN));
    put_measured(why->x, n, "exposed", why->step_ns, json);
    return json;
}

/* Communication hides behind computing, but does not get shorter. Without any communication no
 * worker waits for another. */
static json_t *rates_to_json(const struct why *why, double exposed_ns, double communication_ns)
{
    const double samples = why->args->samples, n_workers = why->args->n_workers;
    const double hidden_ns = fmax(why->step_ns - exposed_ns, communication_ns);
    double without = 0;
    for (uint32_t w = 0; w < why->args->n_workers; w++)
        without += samples * 1e9 / (why->workers[w].own + why->workers[w].optimizer);
    return json_pack("{s:o, s:o}", "hidden", dpb_json_real(n_workers * samples * 1e9 / hidden_ns),
                     "without", dpb_json_real(without));
}

static json_t *make_json(struct why *why)
{
    const struct dpb_why_args *args = why->args;
    uint64_t most = args->n_steps;
    for (uint32_t w = 0; w < args->n_workers; w++) {
        const uint64_t end = dpb_journal_records(args->journals[w]);
        const uint64_t first = args->apart ? args->journals[w]->timed_from : args->first;
        why->workers[w].records = &args->journals[w]->records[first];
        why->workers[w].n = args->apart ? end - first : args->n_steps;
        most = why->workers[w].n > most ? why->workers[w].n : most;
        find_means(&why->workers[w]);
        why->step_ns += why->workers[w].step / args->n_workers;
    }
    why->x = calloc(most + 1, sizeof *why->x);
    why->last = calloc(args->n_steps + 1, sizeof *why->last);
    if (!why->x || !why->last)
        return NULL;
    if (args->apart)
        return json_pack("{s:n, s:o, s:n, s:n}", "last", "data", data_to_json(why), "exchange",
                         "samples_per_s");
    double exposed_ns, communication_ns;
    find_last(why);
    json_t *exchange = exchange_to_json(why, &exposed_ns, &communication_ns);
    return json_pack("{s:o, s:o, s:o, s:o}", "last", last_to_json(why), "data", data_to_json(why),
                     "exchange", exchange, "samples_per_s",
                     rates_to_json(why, exposed_ns, communication_ns));
}

json_t *dpb_why_to_json(const struct dpb_why_args *args)
{
    struct why why = {.args = args, .workers = calloc(args->n_workers, sizeof *why.workers)};
    json_t *json = why.workers ? make_json(&why) : NULL;
    free(why.workers);
    free(why.x);
    free(why.last);
    return json;
}

/* ---- words --------------------------------------------------------------------------------- */

static bool all_decide(const json_t *const *runs, size_t n, const char *statement)
{
    char path[64];
    snprintf(path, sizeof path, "why.%s.decided", statement);
    for (size_t i = 0; i < n; i++)
        if (!dpb_json_true(runs[i], path))
            return false;
    return n > 0;
}

/* Whether the same worker was last in all runs, by the same part. */
static bool all_have_last(const json_t *const *runs, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (dpb_json_number(runs[i], "why.last.rank") !=
                dpb_json_number(runs[0], "why.last.rank") ||
            strcmp(dpb_json_text(runs[i], "why.last.part", ""),
                   dpb_json_text(runs[0], "why.last.part", "")) != 0)
            return false;
    return all_decide(runs, n, "last");
}

/* For an even number of runs, the lower one of the two in the middle. */
static const json_t *median_run(const json_t *const *runs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_before = 0;
        const double rate = dpb_json_number(runs[i], "timing.samples_per_s.mean");
        for (size_t k = 0; k < n; k++) {
            const double other = dpb_json_number(runs[k], "timing.samples_per_s.mean");
            n_before += other < rate || (other == rate && k < i);
        }
        if (n_before == (n - 1) / 2)
            return runs[i];
    }
    return runs[0];
}

static double ms_at(const json_t *run, const char *path)
{
    return dpb_json_number(run, path) / 1e6;
}

static double step_of(const json_t *run)
{
    return dpb_json_number(run, "timing.elapsed_ns") / dpb_json_number(run, "timing.steps");
}

/* Three digits, or all before the point. */
static int digits_of(double value)
{
    return value < 1 ? 3 : value < 10 ? 2 : value < 1000 ? 1 : 0;
}

static void tell_last(const json_t *run, char text[DPB_WHY_TEXT])
{
    const double rank = dpb_json_number(run, "why.last.rank");
    const double ms = ms_at(run, "why.last.part_ns");
    const json_t *share =
        json_array_get(dpb_json_at(run, "why.last.shares"), dpb_json_index(run, "why.last.rank"));
    snprintf(text, DPB_WHY_TEXT,
             "rank %.0f was last in %.0f %% of the steps (%s %.*f ms, others %.*f)", rank,
             100 * json_number_value(share), dpb_json_text(run, "why.last.part", "?"),
             digits_of(ms), ms, digits_of(ms), ms_at(run, "why.last.others_part_ns"));
}

static void tell_data(const json_t *run, char text[DPB_WHY_TEXT])
{
    const double rank = dpb_json_number(run, "why.data.rank"), ms = ms_at(run, "why.data.wait_ns");
    const double step_ms = ms_at(run, "why.data.step_ns");
    const double rate = dpb_json_number(run, "why.data.samples_per_s");
    if (dpb_json_is(run, "timing.clock", "device"))
        snprintf(text, DPB_WHY_TEXT,
                 "data: the device of rank %.0f is idle %.*f of %.*f ms: batches or launches come "
                 "late",
                 rank, digits_of(ms), ms, digits_of(step_ms), step_ms);
    else
        snprintf(
            text, DPB_WHY_TEXT,
            "data: rank %.0f waits %.*f of %.*f ms; its loader gives %.*f/s: raise data.threads "
            "(%.0f)",
            rank, digits_of(ms), ms, digits_of(step_ms), step_ms, digits_of(rate), rate,
            dpb_json_number(run, "config.data.threads.value"));
}

static void tell_exchange(const json_t *run, char text[DPB_WHY_TEXT])
{
    const double ms = ms_at(run, "why.exchange.exposed_ns");
    const double all_ms = ms_at(run, "why.exchange.communication_ns");
    const double mb = dpb_json_number(run, "why.exchange.bytes") / 1e6;
    const double gb_per_s = dpb_json_number(run, "why.exchange.bytes_per_s") / 1e9;
    int n =
        snprintf(text, DPB_WHY_TEXT, "exchange: %.*f of %.*f ms exposed on a step's last worker",
                 digits_of(ms), ms, digits_of(all_ms), all_ms);
    if (n > 0 && n < DPB_WHY_TEXT && isfinite(gb_per_s))
        snprintf(text + n, DPB_WHY_TEXT - (size_t)n, "; a worker passes %.*f MB at %.3g GB/s",
                 digits_of(mb), mb, gb_per_s);
}

/* Whether a step of each run waits for communication by 5 % or more. */
static bool all_wait(const json_t *const *runs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!json_is_object(json_object_get(runs[i], "why")) ||
            !(dpb_json_number(runs[i], "timing.breakdown_ns.comm_exposed") >
              DPB_MARGIN * step_of(runs[i])))
            return false;
    return n > 0;
}

/* Some libraries do not tell a wait for a peer from moving bytes. */
static void tell_waits(const json_t *run, char text[DPB_WHY_TEXT])
{
    const double ms = ms_at(run, "timing.breakdown_ns.comm_exposed"), step_ms = step_of(run) / 1e6,
                 peer_ms = ms_at(run, "timing.breakdown_ns.comm_exposed_wait");
    const int n = snprintf(text, DPB_WHY_TEXT,
                           "waits: a step of %.*f ms waits %.*f ms for communication (exposed): ",
                           digits_of(step_ms), step_ms, digits_of(ms), ms);
    if (dpb_json_number(run, "timing.breakdown_ns.comm_wait_peer") > 0)
        snprintf(text + n, DPB_WHY_TEXT - (size_t)n,
                 "%.*f ms for a late peer (wait), %.*f ms for bytes and sums", digits_of(ms),
                 peer_ms, digits_of(ms), ms - peer_ms);
    else
        snprintf(text + n, DPB_WHY_TEXT - (size_t)n,
                 "for bytes and sums, as no wait for a late peer was reported");
}

/* The connections of a rank to a peer that lost the largest part of what they sent; NULL: none lost
 * one segment in a thousand, and ten at least. */
static const json_t *lossy_peer(const json_t *run, double *rank)
{
    const json_t *found = NULL;
    double most = 1e-3;
    dpb_each_item(json_object_get(run, "ranks"), i, one)
        dpb_each_item(json_object_get(one, "tcp"), k, peer) {
            const double again = dpb_json_number(peer, "retransmitted");
            const double share = again / dpb_json_number(peer, "segments");
            if (!(again >= 10) || !(share >= most))
                continue;
            most = share;
            found = peer;
            *rank = dpb_json_number(one, "rank");
        }
    return found;
}

static bool all_lose(const json_t *const *runs, size_t n)
{
    double rank;
    for (size_t i = 0; i < n; i++)
        if (!json_is_object(json_object_get(runs[i], "why")) || !lossy_peer(runs[i], &rank))
            return false;
    return n > 0;
}

static void tell_network(const json_t *run, char text[DPB_WHY_TEXT])
{
    double rank = 0;
    const json_t *peer = lossy_peer(run, &rank);
    const double segments = dpb_json_number(peer, "segments"),
                 again = dpb_json_number(peer, "retransmitted");
    snprintf(text, DPB_WHY_TEXT,
             "network: rank %.0f sent %.0f of %.0f segments to %s again (%.2g %%), %.0f of %.0f "
             "connections are congested, round trip %.3g ms: the way loses bytes, or is full",
             rank, again, segments, dpb_json_text(peer, "peer", "?"), 100 * again / segments,
             dpb_json_number(peer, "congested"), dpb_json_number(peer, "connections"),
             dpb_json_number(peer, "rtt_us") / 1e3);
}

static void tell_rates(const json_t *run, char text[DPB_WHY_TEXT])
{
    const double hidden = dpb_json_number(run, "why.samples_per_s.hidden");
    const double without = dpb_json_number(run, "why.samples_per_s.without");
    snprintf(text, DPB_WHY_TEXT,
             "samples/s: %.*f if all communication were hidden, %.*f with none and no waiting",
             digits_of(hidden), hidden, digits_of(without), without);
}

size_t dpb_why_sentences(const json_t *const *runs, size_t n,
                         char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT])
{
    const json_t *run = median_run(runs, n);
    const bool last = all_have_last(runs, n), exchange = all_decide(runs, n, "exchange");
    size_t told = 0;
    if (last)
        tell_last(run, text[told++]);
    if (all_decide(runs, n, "data"))
        tell_data(run, text[told++]);
    if (all_wait(runs, n))
        tell_waits(run, text[told++]);
    if (exchange)
        tell_exchange(run, text[told++]);
    if (all_lose(runs, n))
        tell_network(run, text[told++]);
    if (exchange || last)
        tell_rates(run, text[told++]);
    return told;
}

/* ---- a result ------------------------------------------------------------------------------ */

static void print_rank(const json_t *rank, double share, FILE *out)
{
    char name[32];
    snprintf(name, sizeof name, "rank %.0f", dpb_json_number(rank, "rank"));
    fprintf(out, "    %-10s %6.1f %%", name, 100 * share);
    for (size_t i = 0; i < DPB_BREAKDOWN_STEP; i++)
        fprintf(out, "%11.3f",
                ms_at(json_object_get(rank, "breakdown_ns"), dpb_breakdown_names[i]));
    fputc('\n', out);
}

/* With many workers, prints the last one, and workers that were last more often than by chance. */
static void print_ranks(const json_t *result, FILE *out)
{
    enum { MANY = 16 };
    const json_t *shares = dpb_json_at(result, "why.last.shares");
    const size_t n = json_array_size(shares);
    size_t n_left = 0;
    fprintf(out, "  %-13s each worker's own step, in ms\n", "ranks");
    fprintf(out, "    %-10s %8s%11s%11s%11s%11s%11s%11s\n", "rank", "last", "data_wait", "forward",
            "delay", "backward", "optimizer", "exposed");
    dpb_each_item(json_object_get(result, "ranks"), i, rank) {
        const size_t number = dpb_json_index(rank, "rank");
        if (number >= n)
            continue;
        const double share = json_number_value(json_array_get(shares, number));
        if (n <= MANY || share * (double)n > 1 || number == dpb_json_index(result, "why.last.rank"))
            print_rank(rank, share, out);
        else
            n_left++;
    }
    if (n_left > 0)
        fprintf(out, "    %zu more were last no more often than by chance: see ranks[]\n", n_left);
}

void dpb_why_print(const json_t *result, FILE *out)
{
    char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
    const size_t n = dpb_why_sentences(&result, 1, text);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "  %-13s %s\n", "why", text[i]);
    if (all_decide(&result, 1, "last"))
        print_ranks(result, out);
}
