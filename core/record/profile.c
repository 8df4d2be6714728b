/* profile.c - see profile.h. */
#include "record/profile.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* ---- the document -------------------------------------------------------------------------- */

static json_t *limits_to_json(const struct dpb_profile_limits *limits)
{
    return json_pack("{s:o, s:o, s:o, s:o}", //
                     "fp32_flops_per_s", dpb_json_real(limits->fp32_flops_per_s),
                     "bf16_flops_per_s", dpb_json_real(limits->bf16_flops_per_s),
                     "read_bytes_per_s", dpb_json_real(limits->read_bytes_per_s),
                     "copy_bytes_per_s", dpb_json_real(limits->copy_bytes_per_s));
}

/* The op that is done in every pass is called most. */
json_t *dpb_profile_to_json(const struct dpb_journal *journal, uint32_t batch)
{
    json_t *rows = json_array();
    uint64_t passes = 0;
    double bytes = 0;
    for (uint64_t i = 0; i < journal->n_profile && i < DPB_JOURNAL_PROFILE; i++) {
        const struct dpb_profile_entry *entry = &journal->profile[i];
        passes = entry->calls > passes ? entry->calls : passes;
        bytes += entry->bytes;
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o}",       //
                                              "layer", entry->layer,                            //
                                              "op", entry->op,                                  //
                                              "what", entry->what,                              //
                                              "pass", entry->backward ? "backward" : "forward", //
                                              "calls", (json_int_t)entry->calls,                //
                                              "ns", (json_int_t)entry->ns,                      //
                                              "flops", dpb_json_real(entry->flops),             //
                                              "bytes", dpb_json_real(entry->bytes)));
    }
    const double samples = (double)passes * batch;
    return json_pack("{s:o, s:s, s:o, s:o}", "limits", limits_to_json(&journal->limits), "how",
                     journal->profile_how[0] ? journal->profile_how : "the clock around each op",
                     "rows", rows, "bytes_per_sample",
                     dpb_json_real(samples > 0 ? bytes / samples : 0));
}

/* ---- the table ----------------------------------------------------------------------------- */

/* One line of the table: sums over some rows. */
struct line {
    const char *op, *what, *pass;
    double call_ns; /* mean of a call, summed over the rows */
    double ns, flops, bytes;
};

static struct line line_of(const json_t *row)
{
    double ns = dpb_json_number(row, "ns"), calls = dpb_json_number(row, "calls");
    return (struct line){.op = dpb_json_text(row, "op", "?"),
                         .what = dpb_json_text(row, "what", "?"),
                         .pass = dpb_json_text(row, "pass", "?"),
                         .call_ns = calls > 0 ? ns / calls : 0,
                         .ns = ns,
                         .flops = dpb_json_number(row, "flops"),
                         .bytes = dpb_json_number(row, "bytes")};
}

static void print_line(const char *layer, const struct line *line, double total_ns, FILE *out)
{
    fprintf(out, "    %-24.24s %-12.12s %-34.34s %10.3f %6.1f", layer, line->op, line->what,
            line->call_ns / 1e6, total_ns > 0 ? 100 * line->ns / total_ns : 0.0);
    if (line->flops > 0 && line->ns > 0)
        fprintf(out, " %10.1f", line->flops / line->ns);
    else
        fprintf(out, " %10s", "");
    if (line->ns > 0)
        fprintf(out, " %8.1f", line->bytes / line->ns);
    fputc('\n', out);
}

static void print_head(const char *layer, FILE *out)
{
    fprintf(out, "    %-24s %-12s %-34s %10s %6s %10s %8s\n", layer, "op", "what", "ms", "share",
            "GFLOP/s", "GB/s");
}

static bool same_kind(const struct line *a, const struct line *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->what, b->what) == 0 &&
           strcmp(a->pass, b->pass) == 0;
}

/* One line for each kind, in the order in which they come first. */
static void print_kinds(const json_t *rows, double total_ns, FILE *out)
{
    struct line kinds[256];
    size_t n = 0;
    dpb_each_item(rows, i, row) {
        struct line line = line_of(row);
        size_t k = 0;
        while (k < n && !same_kind(&kinds[k], &line))
            k++;
        if (k == sizeof kinds / sizeof kinds[0])
            continue;
        if (k == n) {
            kinds[n++] = line;
            continue;
        }
        kinds[k].call_ns += line.call_ns;
        kinds[k].ns += line.ns;
        kinds[k].flops += line.flops;
        kinds[k].bytes += line.bytes;
    }
    print_head("sums by kind", out);
    struct line all = {.op = "", .what = ""};
    for (size_t k = 0; k < n; k++) {
        print_line(kinds[k].pass, &kinds[k], total_ns, out);
        all.call_ns += kinds[k].call_ns;
        all.ns += kinds[k].ns;
        all.flops += kinds[k].flops;
        all.bytes += kinds[k].bytes;
    }
    print_line("all", &all, total_ns, out);
}

/* A device need not know all of them. */
static void print_limits(const json_t *limits, FILE *out)
{
    static const struct {
        const char *key, *what;
    } known[] = {{"fp32_flops_per_s", "GFLOP/s fp32"},
                 {"bf16_flops_per_s", "GFLOP/s bf16"},
                 {"read_bytes_per_s", "GB/s read"},
                 {"copy_bytes_per_s", "GB/s copied (read + written)"}};
    const char *before = "    limits: ";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double rate = dpb_json_number(limits, known[i].key);
        if (!(rate > 0))
            continue;
        fprintf(out, "%s%.1f %s", before, rate / 1e9, known[i].what);
        before = ", ";
    }
    fputc('\n', out);
}

void dpb_profile_print(const json_t *profile, FILE *out)
{
    const json_t *rows = json_object_get(profile, "rows");
    double total_ns = 0;
    dpb_each_item(rows, i, row)
        total_ns += dpb_json_number(row, "ns");
    fprintf(out, "  profile       rank 0, the timed steps; ms are the mean of a pass\n");
    fprintf(out, "                by %s\n", dpb_json_text(profile, "how", "?"));
    print_head("layer", out);
    dpb_each_item(rows, i, row) {
        struct line line = line_of(row);
        print_line(dpb_json_text(row, "layer", "?"), &line, total_ns, out);
    }
    print_kinds(rows, total_ns, out);
    print_limits(json_object_get(profile, "limits"), out);
    const double moved = dpb_json_number(profile, "bytes_per_sample");
    if (isfinite(moved)) /* a result of an earlier dpbench has none */
        fprintf(out, "    moved: %.1f MB a sample\n", moved / 1e6);
}
