/* execute.c - see execute.h. */
#include "study/sweep/execute.h"

#include <ctype.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/cell.h"
#include "record/invocation.h"
#include "study/sweep/child.h"
#include "study/sweep/launch_line.h"
#include "study/sweep/sweep_list.h"

enum { REASON = 512 };

static bool is_launched(const struct dpb_cells *cells)
{
    return cells->sweep->options.launch[0] != '\0';
}

/* ---- programs ------------------------------------------------------------------------------ */

/* The file of a program as a shell finds it. */
static bool find_program(const char *name, char path[PATH_MAX])
{
    const char *at = getenv("PATH");
    if (strchr(name, '/')) {
        snprintf(path, PATH_MAX, "%s", name);
        return access(path, X_OK) == 0;
    }
    while (at && *at != '\0') {
        const size_t length = strcspn(at, ":");
        snprintf(path, PATH_MAX, "%.*s/%s", length > 0 ? (int)length : 1, length > 0 ? at : ".",
                 name);
        if (access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

static void note_file(struct dpb_cells *cells)
{
    struct stat info;
    if (stat(cells->program, &info) == 0) {
        cells->device = info.st_dev;
        cells->inode = info.st_ino;
    }
}

dpb_status dpb_cells_of_build(const struct dpb_sweep *sweep, const char *program,
                              struct dpb_cells *cells)
{
    *cells = (struct dpb_cells){.sweep = sweep, .without = "DPBENCH_PLUGIN_PATH"};
    if (!realpath(program, cells->program))
        return dpb_fail(DPB_USAGE, "%s: %m", program);
    note_file(cells);
    return DPB_OK;
}

dpb_status dpb_cells_open(const struct dpb_sweep *sweep, struct dpb_cells *cells)
{
    char **words, path[PATH_MAX];
    size_t n_words;
    *cells = (struct dpb_cells){.sweep = sweep};
    if (is_launched(cells)) {
        DPB_TRY(dpb_sweep_launch(sweep, 1, 0, 1, &words, &n_words));
        dpb_status status =
            find_program(words[0], path)
                ? DPB_OK
                : dpb_fail(DPB_USAGE, "%s: %s.launch: there is no program '%s' here",
                           sweep->launch_origin, sweep->study->name, words[0]);
        dpb_sweep_list_destroy(words, n_words);
        DPB_TRY(status);
    }
    DPB_TRY(dpb_program_itself(cells->program));
    note_file(cells);
    return DPB_OK;
}

/* Another file in the place of dpbench is another build. */
static dpb_status check_program(const struct dpb_cells *cells)
{
    struct stat info;
    if (stat(cells->program, &info) == 0 && info.st_dev == cells->device &&
        info.st_ino == cells->inode)
        return DPB_OK;
    return dpb_fail(DPB_FAILED, "%s: it was moved or replaced after the start of the sweep",
                    cells->program);
}

/* ---- what is asked for --------------------------------------------------------------------- */

/* The configuration for the child. A launcher says itself where its ranks are. */
static json_t *config_to_json(const struct dpb_config *config)
{
    static const char mark[] = DPB_LAUNCH_ORIGIN ", ";
    struct dpb_config *copy = dpb_config_copy(config);
    const struct dpb_setting *hosts = copy ? dpb_config_get(copy, "comm", "hosts") : NULL;
    if (hosts && strcmp(hosts->origin, DPB_LAUNCH_ORIGIN) == 0) {
        dpb_config_remove(copy, "comm", "hosts");
        hosts = NULL;
    }
    json_t *json = copy ? dpb_config_to_json(copy) : NULL;
    if (hosts && dpb_begins_with(hosts->origin, mark))
        json_object_set_new((json_t *)(uintptr_t)dpb_json_at(json, "comm.hosts"), "origin",
                            dpb_json_string(hosts->origin + sizeof mark - 1));
    dpb_config_destroy(copy);
    return json;
}

/* A request of cell.h. @owned; NULL: out of memory. */
static char *make_request(const struct dpb_cells *cells, const struct dpb_config *config,
                          const struct dpb_live_place *place)
{
    json_t *request =
        json_pack("{s:s, s:o}", "schema", "dpbench.cell/1", "config", config_to_json(config));
    if (!is_launched(cells)) { /* nobody sees its messages there */
        json_object_set_new(request, "label", dpb_json_string(place->label));
        json_object_set_new(request, "ended_s", json_real(place->ended_s));
        json_object_set_new(request, "n_ended", json_integer((json_int_t)place->n_ended));
        json_object_set_new(request, "n_left", json_integer((json_int_t)place->n_left));
        json_object_set_new(request, "warned", dpb_warned_to_json());
        if (place->orders > 0)
            json_object_set_new(request, "orders", json_integer(place->orders));
    }
    char *text = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    return text;
}

/* The words of the launcher for the experiment; none without sweep.launch. */
static dpb_status launch_words(const struct dpb_cells *cells, const struct dpb_config *config,
                               char ***words, size_t *n_words)
{
    struct dpb_experiment *experiment = NULL;
    if (!is_launched(cells))
        return DPB_OK;
    DPB_TRY(dpb_experiment_create(config, &experiment));
    dpb_status status =
        dpb_sweep_launch(cells->sweep, experiment->n_workers, experiment->n_servers,
                         (uint32_t)experiment->settings.run.learners, words, n_words);
    dpb_experiment_destroy(experiment);
    return status;
}

/* The words of the launcher, then of dpbench, ended by NULL. They are the caller's, also after a
 * failure: dpb_sweep_list_destroy. */
static dpb_status make_words(const struct dpb_cells *cells, const struct dpb_config *config,
                             const char *request, char ***words, size_t *n_words)
{
    const char *const own[] = {cells->program, "-c", is_launched(cells) ? request : "-", "--json"};
    enum { OWN = sizeof own / sizeof *own };
    DPB_TRY(launch_words(cells, config, words, n_words));
    char **line = realloc(*words, (*n_words + OWN + 1) * sizeof *line);
    DPB_TRY(dpb_allocated(line));
    *words = line;
    line += *n_words;
    for (size_t i = 0; i < OWN; i++) {
        *line = strdup(own[i]);
        DPB_TRY(dpb_allocated(*line));
        *++line = NULL;
        ++*n_words;
    }
    return DPB_OK;
}

void dpb_cell_launch_print(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                           FILE *out)
{
    char **words;
    size_t n_words;
    if (sweep->options.launch[0] == '\0' ||
        dpb_sweep_launch(sweep, experiment->n_workers, experiment->n_servers,
                         (uint32_t)experiment->settings.run.learners, &words, &n_words) != DPB_OK)
        return;
    for (size_t i = 0; i < n_words; i++)
        fprintf(out, "%s %s", i == 0 ? "; by" : "", words[i]);
    dpb_sweep_list_destroy(words, n_words);
}

/* ---- what came out ------------------------------------------------------------------------- */

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* The error of dpbench itself (true); where there is none, the first line with a word in it. */
static bool find_reason(const char *text, char reason[REASON])
{
    static const char mark[] = "error: ", settings[] = "command line: ";
    const char *found = NULL;
    bool own = false;
    for (const char *line = text; *line != '\0' && !own; line = next_line(line)) {
        own = dpb_begins_with(line, mark);
        if (own)
            found = line + sizeof mark - 1;
        for (const char *c = line; !found && *c != '\0' && *c != '\n'; c++)
            found = isalnum((unsigned char)*c) ? line : NULL;
    }
    if (own && dpb_begins_with(found, settings))
        found += sizeof settings - 1; /* the sweep's user did not write it */
    snprintf(reason, REASON, "%.*s", found ? (int)strcspn(found, "\n") : 0, found ? found : "");
    return own;
}

static dpb_status status_named(const char *name)
{
    for (int status = DPB_OK; strcmp(dpb_status_name((dpb_status)status), "UNKNOWN") != 0; status++)
        if (strcmp(dpb_status_name((dpb_status)status), name) == 0)
            return (dpb_status)status;
    return DPB_FAILED;
}

/* Why a cell has left no result. */
static dpb_status explain(const struct dpb_cells *cells, const char *program,
                          const struct dpb_child_end *end)
{
    const struct dpb_sweep *sweep = cells->sweep;
    char reason[REASON];
    const bool own = find_reason(end->err, reason);
    if (end->signal_number != 0)
        return dpb_fail(DPB_INTERRUPTED, "interrupted by signal %d before there was a result",
                        end->signal_number);
    if (end->late && !end->whole)
        return dpb_fail(DPB_TIMEOUT, "%s has not ended within %s.launch_limit_s = %g s: %s",
                        program, sweep->study->name, (double)sweep->options.launch_limit_ns * 1e-9,
                        reason[0] ? reason : "it said nothing");
    if (own && end->code == dpb_status_exit_code(DPB_UNSUPPORTED))
        return dpb_fail(DPB_UNSUPPORTED, "%s", reason);
    if (end->code == 0 || end->whole)
        return dpb_fail(DPB_FAILED,
                        "%s printed no result of one run: '%.60s'; does it start several jobs, or "
                        "print lines of its own?",
                        program, end->out);
    return dpb_fail(DPB_FAILED, "%s ended with exit code %d: %s", program, end->code,
                    is_launched(cells) ? reason : "it left no result");
}

static json_t *result_of(const struct dpb_child_end *end)
{
    json_t *made = json_loadb(end->out, end->out_bytes, 0, NULL);
    if (dpb_json_is(made, "schema", "dpbench.result/1"))
        return made;
    json_decref(made);
    return NULL;
}

/* A result of dpbench itself is the sweep's: how it was called is how the sweep was. */
static void take_result(const struct dpb_cells *cells, json_t *result)
{
    if (!is_launched(cells)) {
        dpb_warned_from_json(json_object_get(result, "warned"));
        if (json_object_get(result, "invocation"))
            json_object_set_new(result, "invocation", dpb_result_invocation());
    }
    json_object_del(result, "warned");
}

static void take_end(const struct dpb_cells *cells, const char *program,
                     const struct dpb_child_end *end, struct dpb_execution *execution)
{
    execution->result = result_of(end);
    if (!execution->result) {
        execution->status = explain(cells, program, end);
    } else {
        const char *failure = dpb_json_text(execution->result, "failure", NULL);
        execution->status = failure ? status_named(failure) : DPB_OK;
        if (failure && is_launched(cells))
            dpb_fail(execution->status, "%s",
                     dpb_json_text(execution->result, "error", "no reason given"));
        if (end->late)
            dpb_log(DPB_LOG_INFO, "  %s has not ended after its result, and was ended", program);
        take_result(cells, execution->result);
    }
    execution->exit_code = dpb_status_exit_code(execution->status);
    if (execution->status == DPB_INTERRUPTED)
        execution->exit_code = end->signal_number != 0 ? 128 + end->signal_number : end->code;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static dpb_status describe(const struct dpb_cells *cells, struct dpb_cell_run *run, int orders,
                           struct dpb_child *child)
{
    DPB_TRY(check_program(cells));
    if (!find_program(run->words[0], run->path))
        return dpb_fail(DPB_FAILED, "there is no program '%s' any more", run->words[0]);
    *child = (struct dpb_child){.program = run->path,
                                .words = (const char *const *)run->words,
                                .input = is_launched(cells) ? NULL : run->request,
                                .without = cells->without,
                                .limit_ns = cells->sweep->options.launch_limit_ns,
                                .orders = orders,
                                .lingers = is_launched(cells)};
    return DPB_OK;
}

dpb_status dpb_cell_start(const struct dpb_cells *cells, const struct dpb_config *config,
                          const struct dpb_live_place *place, const struct dpb_signals *held,
                          struct dpb_cell_run *run)
{
    struct dpb_child child;
    *run = (struct dpb_cell_run){.request = make_request(cells, config, place)};
    dpb_status status = dpb_allocated(run->request);
    DPB_THEN(status, make_words(cells, config, run->request, &run->words, &run->n_words));
    DPB_THEN(status, describe(cells, run, place->orders, &child));
    if (status == DPB_OK)
        status =
            held ? dpb_child_start(&child, held, &run->running) : dpb_child_run(&child, &run->end);
    return status;
}

void dpb_cell_end(const struct dpb_cells *cells, struct dpb_cell_run *run, dpb_status status,
                  struct dpb_execution *execution)
{
    *execution = (struct dpb_execution){status, dpb_status_exit_code(status), NULL};
    if (status == DPB_OK)
        take_end(cells, run->words[0], &run->end, execution);
    if (execution->status == DPB_OK && run->end.signal_number != 0)
        raise(run->end.signal_number); /* it came after the result: the sweep ends, too */
    dpb_child_release(&run->end);
    dpb_sweep_list_destroy(run->words, run->n_words);
    free(run->request);
}

void dpb_cell_execute(const struct dpb_cells *cells, const struct dpb_config *config,
                      const struct dpb_live_place *place, struct dpb_execution *execution)
{
    struct dpb_cell_run run;
    const dpb_status status = dpb_cell_start(cells, config, place, NULL, &run);
    dpb_cell_end(cells, &run, status, execution);
}
