/* verdict.c - see verdict.h. */
#include "study/document/verdict.h"

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"

/* The runs of a cell, but for those that the user interrupted. */
struct tally {
    json_int_t n, n_ok, n_wrong;
    bool exchanges, proved;
    const char *wrong, *not_followed; /* reasons of the first such run; NULL: there is none */
};

static bool is_ok(const json_t *run)
{
    return dpb_json_is(run, "status", "ok");
}

static bool is_part(const json_t *run, const char *name, const char *verdict)
{
    const json_t *parts = json_object_get(run, "verification");
    return strcmp(dpb_json_text(parts, name, "skipped"), verdict) == 0;
}

/* Runs without training have no such part. */
static bool passed(const json_t *run, const char *name)
{
    return is_part(run, name, "pass") || is_part(run, name, "not_applicable");
}

static bool is_training(const json_t *run)
{
    return strcmp(dpb_json_text(run, "config.run.mode.value", "train"), "train") == 0;
}

/* NULL: nothing is wrong. A part stands on `fail` also where the run ended during its check, so the
 * cause of the run's end decides. */
static const char *wrong_of(const json_t *run, const json_t *odd)
{
    if (!is_ok(run))
        return dpb_json_is(run, "failure", dpb_status_name(DPB_VERIFICATION))
                   ? dpb_json_text(run, "error", "no reason given")
                   : NULL;
    if (is_training(run) && json_object_get(run, "verification") &&
        (!passed(run, "pattern") || !passed(run, "replicas") || is_part(run, "exchange", "fail") ||
         is_part(run, "after", "fail") || is_part(run, "steps", "fail")))
        return "a run ended well without having passed its checks";
    return json_string_value(odd);
}

/* NULL: steps of the run were followed, and its weights were checked to the end. */
static const char *not_followed(const json_t *run)
{
    if (is_ok(run) && is_part(run, "steps", "pass"))
        return passed(run, "after") ? NULL : "weights were not finite after training";
    return dpb_json_text(run, "verification.steps_reason", "a run ended without following steps");
}

static void count(const json_t *run, const json_t *odd, struct tally *tally)
{
    const char *wrong = wrong_of(run, odd);
    const bool exchanges = is_training(run) && (!is_part(run, "pattern", "not_applicable") ||
                                                !is_part(run, "replicas", "not_applicable"));
    tally->n++;
    tally->n_ok += is_ok(run);
    tally->n_wrong += wrong != NULL;
    tally->exchanges |= is_ok(run) && exchanges;
    tally->proved &= is_part(run, "exchange", "pass");
    tally->wrong = tally->wrong ? tally->wrong : wrong;
    tally->not_followed = tally->not_followed ? tally->not_followed : not_followed(run);
}

void dpb_verdict_set(const json_t *document, const json_t *odd, json_t *row)
{
    struct tally tally = {.proved = true};
    dpb_each_item(json_object_get(document, "runs"), i, run)
        if (json_equal(json_object_get(run, "cell"), json_object_get(row, "cell")) &&
            !dpb_json_is(run, "status", "interrupted"))
            count(run, json_array_get(odd, i), &tally);
    const bool wrong = tally.n_wrong > 0, none = tally.n_ok == 0;
    const bool applies = wrong || none || tally.exchanges;
    const char *reason = wrong                           ? tally.wrong
                         : none                          ? NULL
                         : applies && tally.not_followed ? tally.not_followed
                                                         : NULL;
    json_t *verdict =
        wrong    ? json_sprintf("NO (%lld of %lld)", (long long)tally.n_wrong, (long long)tally.n)
        : none   ? json_null()
        : reason ? json_string("ends only")
                 : json_string(applies ? "yes" : "n/a");
    json_object_update_new(row,
                           json_pack("{s:o, s:b, s:o, s:o?}", "verified",
                                     applies ? json_boolean(!wrong && !none) : json_null(),
                                     "proved", tally.proved && !wrong && !none, "verdict", verdict,
                                     "verdict_reason", reason ? dpb_json_line(reason) : NULL));
}

const json_t *dpb_verdict_failed(const json_t *document)
{
    dpb_each_item(json_object_get(document, "rows"), i, row)
        if (strncmp(dpb_json_text(row, "verdict", ""), "NO", 2) == 0)
            return row;
    return NULL;
}
