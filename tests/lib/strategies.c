/* strategies.c - see strategies.h. */
#include "lib/strategies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/comm.h"
#include "lib/command.h"

enum { MOST_STRATEGIES = 64, MOST_FORMS = 3 * MOST_STRATEGIES };
static const double deadline_s = 60.0;

/* What no capability says. */
static const struct hint {
    const char *name, *small;
    bool machines, shards, meets; /* meets: replicas differ, though a codec is carried */
} hints[] = {
    {"ring_tcp", "comm.chunk=64 comm.inbox=256", false, true, false},
    {"hierarchical", "comm.chunk=64 comm.inbox=256", true, true, false},
    {"shm", "", false, true, false},
    {"replicated", "", false, true, false},
    {"gloo", "", false, true, false},
    {"local_sgd", "", false, false, true},
    {"diloco", "", false, false, true},
};

static struct strategy strategies[MOST_STRATEGIES + 1];

/* ---- what dpbench says --------------------------------------------------------------------- */

static bool has_hook(const json_t *row, const char *hook)
{
    const json_t *name;
    size_t i;
    json_array_foreach(json_at(row, "hooks"), i, name)
    {
        if (strcmp(json_string_value(name), hook) == 0)
            return true;
    }
    return false;
}

/* The name of plugins/comm_shm.so, without directory and ending. */
static char *plugin_of(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return strndup(name, strcspn(name, "."));
}

static struct strategy read_row(const json_t *row)
{
    const char *runtime = json_text_at(row, "runtime");
    struct strategy strategy = {
        .name = strdup(json_text_at(row, "name")),
        .plugin = plugin_of(json_text_at(row, "path")),
        .capabilities = (uint64_t)json_integer_value(json_at(row, "capabilities")),
        .runtime = runtime[0] ? strdup(runtime) : NULL,
        .usable = json_is_null(json_at(row, "missing")),
        .library = json_array_size(json_at(row, "libraries")) > 0,
        .small = "",
    };
    const bool books =
        has_hook(row, "books") && !(strategy.capabilities & (DPB_COMM_CODECS | DPB_COMM_ROUNDS));
    strategy.synchronous = !(strategy.capabilities & DPB_COMM_ALONE) && !books &&
                           !has_hook(row, "settle") && !has_hook(row, "applied");
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strcmp(hints[i].name, strategy.name) == 0) {
            strategy.small = hints[i].small;
            strategy.machines = hints[i].machines;
            strategy.shards = hints[i].shards;
            strategy.synchronous = strategy.synchronous && !hints[i].meets;
        }
    return strategy;
}

static void die(const char *why, const char *text)
{
    fprintf(stderr, "dpbench plugins --json: %s: %s\n", why, text);
    exit(1); /* before the first test there is none to fail */
}

static void ask(void)
{
    struct command command;
    const json_t *row;
    size_t i, n = 0;
    dpbench(&command, deadline_s, "plugins --json");
    json_array_foreach(json_at(command.json, "plugins"), i, row)
    {
        if (!json_is_true(json_at(row, "usable")) ||
            strcmp(json_text_at(row, "kind"), "comm") != 0 ||
            strstr(json_text_at(row, "path"), "/tests/plugins/"))
            continue;
        if (n == MOST_STRATEGIES || !json_is_array(json_at(row, "hooks")))
            die("more strategies than the table takes, or one without hooks", command.out);
        strategies[n++] = read_row(row);
    }
    if (n == 0)
        die("no strategy", command.err);
}

const struct strategy *strategy_after(const struct strategy *strategy)
{
    if (!strategies[0].name)
        ask();
    strategy = strategy ? strategy + 1 : strategies;
    return strategy->name ? strategy : NULL;
}

const struct strategy *strategy_named(const char *name)
{
    for (const struct strategy *s = NULL; (s = strategy_after(s));)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

bool strategy_on_host(const struct strategy *strategy)
{
    return strategy->usable && !strategy->runtime && !(strategy->capabilities & DPB_COMM_LAUNCHER);
}

/* ---- forms --------------------------------------------------------------------------------- */

static struct strategy_form strategy_forms[MOST_FORMS + 1];

static struct strategy_form form_of(const struct strategy *strategy, int servers, bool sharded)
{
    const bool has_servers = strategy->capabilities & DPB_COMM_SERVERS;
    const bool network = strategy->capabilities & DPB_COMM_MULTI_NODE && !has_servers;
    char label[128];
    if (!has_servers)
        snprintf(label, sizeof label, "%s%s", strategy->name, sharded ? ", sharded" : "");
    else if (servers == 0)
        snprintf(label, sizeof label, "%s, shards in the workers", strategy->name);
    else
        snprintf(label, sizeof label, "%s, %d server%s", strategy->name, servers,
                 servers > 1 ? "s" : "");
    return (struct strategy_form){.name = strategy->name,
                                  .servers = servers,
                                  .label = strdup(label),
                                  .network = network,
                                  .ring = network && !strategy->library,
                                  .machines = strategy->machines,
                                  .sharded = sharded,
                                  .synchronous = strategy->synchronous};
}

static void make_forms(void)
{
    static const int servers[] = {0, 1, 3};
    size_t n = 0;
    for (const struct strategy *s = NULL; (s = strategy_after(s));) {
        for (int i = 0; i < (s->capabilities & DPB_COMM_SERVERS ? 3 : 1); i++)
            if (strategy_on_host(s) && !(s->capabilities & DPB_COMM_ALONE) &&
                (servers[i] > 0 || !(s->capabilities & DPB_COMM_SERVED)))
                strategy_forms[n++] = form_of(s, servers[i], false);
        if (s->shards)
            strategy_forms[n++] = form_of(s, 0, true);
    }
}

const struct strategy_form *any_form_after(const struct strategy_form *form)
{
    if (!strategy_forms[0].name)
        make_forms();
    form = form ? form + 1 : strategy_forms;
    return form->name ? form : NULL;
}

const struct strategy_form *strategy_form_after(const struct strategy_form *form)
{
    do
        form = any_form_after(form);
    while (form && !form->synchronous);
    return form;
}

const char *form_settings(const struct strategy_form *form, const char *prefix, int workers)
{
    static char text[192];
    int n =
        snprintf(text, sizeof text, "comm.name=%s%s%s run.servers=%d run.workers=%d", prefix,
                 form->name, form->sharded ? " comm.shard=optimizer" : "", form->servers, workers);
    int first = form->servers > 0 ? workers : workers / 2;
    if (form->machines && first > 0)
        snprintf(text + n, sizeof text - (size_t)n, " comm.hosts=%d+%d comm.interface=lo", first,
                 workers + form->servers - first);
    return text;
}

bool is_cell(const struct strategy_form *form, int workers, bool small_buckets)
{
    if (form->machines)
        return workers > 1 && (workers == 3 || !small_buckets);
    if (!form->network || form->ring)
        return true;
    if (small_buckets)
        return workers == 2;
    return workers <= 3 || (workers == 5 && getenv("DPB_ALL_CELLS") != NULL);
}
