/* cross_check.c - see cross_check.h. */
#include "study/document/cross_check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/facts.h"
#include "study/document/spill.h"

/* The summation of a forward pass is the same, so this leaves room for nothing but its type. */
static const double tolerance = 1e-6;

static bool is_alone(const json_t *run)
{
    return dpb_json_is(run, "strategy.consistency", "none");
}

static double loss_at(const json_t *run, size_t step)
{
    return dpb_run_item(run, "loss", step);
}

/* A strategy that drops gradients stops the forward pass of workers: they have no loss. */
static bool is_comparable(const json_t *run)
{
    const char *precision = dpb_json_text(run, "config.run.precision.value", "");
    const char *consistency = dpb_json_text(run, "strategy.consistency", "");
    return dpb_json_is(run, "status", "ok") && isfinite(loss_at(run, 0)) &&
           !json_is_object(json_object_get(run, "gpus")) &&
           (strcmp(precision, "fp32") == 0 || strcmp(precision, "fp64") == 0) &&
           !dpb_begins_with(consistency, "partial(") && !dpb_begins_with(consistency, "batches(") &&
           dpb_json_number(run, "world.left") == dpb_json_number(run, "world.workers");
}

/* Equal texts: equal first losses; with the optimizer, equal losses of each worker alone. @owned:
 * free(). NULL: out of memory. */
static char *setup_of(const json_t *run, bool with_optimizer)
{
    static const char *const facts[] = {"world.workers",          "machine.processor",
                                        "machine.instructions",   "versions.build",
                                        "versions.plugins.model", "versions.plugins.data",
                                        "versions.plugins.device"};
    json_t *setup = json_copy(json_object_get(run, "config")), *ranks = json_array(),
           *all = dpb_run_part(run, "ranks");
    json_object_del(setup, "comm");
    if (!with_optimizer)
        json_object_del(setup, "optimizer");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        json_object_set(setup, facts[i], (json_t *)(uintptr_t)dpb_json_at(run, facts[i]));
    dpb_each_member(json_object_get(run, "inputs"), name, input)
        if (!dpb_begins_with(name, "comm."))
            json_object_set(setup, name, input);
    dpb_each_item(all, i, rank) {
        json_array_append(ranks, json_object_get(rank, "host"));
        json_array_append(ranks, json_object_get(rank, "threads"));
    }
    json_decref(all);
    json_object_set_new(setup, "ranks", ranks);
    char *text = setup ? json_dumps(setup, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(setup);
    return text;
}

/* The numbers of comparable runs, by their setup. @owned. */
static json_t *groups_of(const json_t *runs, bool with_optimizer)
{
    json_t *groups = json_object();
    dpb_each_item(runs, i, run) {
        char *setup = is_comparable(run) ? setup_of(run, with_optimizer) : NULL;
        if (setup && !json_object_get(groups, setup))
            json_object_set_new(groups, setup, json_array());
        if (setup)
            json_array_append_new(json_object_get(groups, setup), json_integer((json_int_t)i));
        free(setup);
    }
    return groups;
}

static json_t *run_at(const json_t *runs, const json_t *number)
{
    return json_array_get(runs, (size_t)json_integer_value(number));
}

static bool agree(const json_t *a, const json_t *b)
{
    const double x = loss_at(a, 0), y = loss_at(b, 0);
    return fabs(x - y) <= tolerance * fmax(fabs(x), fabs(y));
}

/* The run with which most of the group agree; of equals the one that exchanges nothing. */
static const json_t *usual_of(const json_t *runs, const json_t *group)
{
    const json_t *usual = NULL;
    size_t most = 0;
    dpb_each_item(group, i, number) {
        const json_t *run = run_at(runs, number);
        size_t votes = is_alone(run) ? 1 : 0;
        dpb_each_item(group, k, other)
            votes += agree(run, run_at(runs, other)) ? 2 : 0;
        if (votes > most)
            usual = run;
        most = votes > most ? votes : most;
    }
    return usual;
}

/* "shm", or "shm (comm.bucket = 4096, run.workers = 2)" */
static const char *name_of(const json_t *run, char name[256])
{
    struct dpb_text text = dpb_text_in(name, 256);
    const char *gap = " (";
    dpb_text_add(&text, "%s", dpb_json_text(run, "strategy.name", "?"));
    dpb_each_member(json_object_get(run, "cell"), key, value) {
        if (strcmp(key, "comm.name") == 0)
            continue;
        dpb_text_add(&text, "%s%s = %s", gap, key, dpb_json_text(value, "", "?"));
        gap = ", ";
    }
    dpb_text_add(&text, "%s", gap[0] == ',' ? ")" : "");
    return name;
}

json_t *dpb_cross_check(const json_t *document)
{
    const json_t *runs = json_object_get(document, "runs");
    json_t *odd = json_array(), *groups = groups_of(runs, false);
    for (size_t i = 0; i < json_array_size(runs); i++)
        json_array_append_new(odd, json_null());
    dpb_each_member(groups, setup, group) {
        const json_t *usual = usual_of(runs, group);
        dpb_each_item(group, i, number) {
            const json_t *run = run_at(runs, number);
            char own[256], other[256], text[1024];
            if (agree(run, usual))
                continue;
            snprintf(text, sizeof text,
                     "the first loss of %s is %.9g, and that of %s %.9g: both began with the same "
                     "weights and samples",
                     name_of(run, own), loss_at(run, 0), name_of(usual, other), loss_at(usual, 0));
            json_array_set_new(odd, (size_t)json_integer_value(number), dpb_json_string(text));
        }
    }
    json_decref(groups);
    return odd;
}

/* The first step whose loss shows that workers have exchanged or met; infinite: unknown. */
static double shown_from(const json_t *run)
{
    const char *consistency = dpb_json_text(run, "strategy.consistency", "");
    if (dpb_begins_with(consistency, "periodic("))
        return strtod(consistency + strlen("periodic("), NULL);
    if (dpb_begins_with(consistency, "late("))
        return 1 + strtod(consistency + strlen("late("), NULL);
    const double period = dpb_json_number(run, "config.comm.period.value");
    return strcmp(consistency, "averaging") != 0 ? 1 : isfinite(period) ? period : INFINITY;
}

/* Bit for bit in all common steps, of which one at least shows an exchange. */
static bool trains_alike(const json_t *run, const json_t *alone)
{
    bool moves = false, alike = loss_at(run, 0) == loss_at(alone, 0) &&
                                loss_at(run, 1) == loss_at(alone, 1); /* before all are read */
    json_t *own = alike ? dpb_run_part(run, "loss") : NULL,
           *its = alike ? dpb_run_part(alone, "loss") : NULL;
    size_t step = 0;
    for (; step < json_array_size(own) && step < json_array_size(its) && alike; step++) {
        alike = dpb_json_item(own, step) == dpb_json_item(its, step);
        moves |= dpb_json_item(own, step) != dpb_json_item(own, 0);
    }
    json_decref(own);
    json_decref(its);
    return alike && moves && (double)step > shown_from(run) &&
           dpb_json_number(run, "world.workers") > 1 &&
           dpb_json_number(run, "config.optimizer.learning_rate.value") > 0;
}

void dpb_cross_check_warn(const json_t *document, json_t *warnings)
{
    const json_t *runs = json_object_get(document, "runs");
    json_t *groups = groups_of(runs, true);
    dpb_each_member(groups, setup, group)
        dpb_each_item(group, i, number)
            dpb_each_item(group, k, other) {
                const json_t *run = run_at(runs, number), *alone = run_at(runs, other);
                if (is_alone(run) || !is_alone(alone) || !trains_alike(run, alone))
                    continue;
                char own[256], its[256];
                dpb_warnings_add(warnings, "like_independent",
                                 "each loss of %s is that of %s, bit for bit: it trains as if its "
                                 "workers did not exchange",
                                 name_of(run, own), name_of(alone, its));
            }
    json_decref(groups);
}
