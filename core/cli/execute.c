/* execute.c - runs one job, from its experiment to its result, and delivers the result. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "launch/launch.h"
#include "machine/latency.h"
#include "measure/journal.h"
#include "measure/monitor.h"
#include "plan/binding.h"
#include "plan/fit.h"
#include "plan/refuse.h"
#include "record/demands.h"
#include "record/invocation.h"
#include "record/live.h"
#include "record/result.h"
#include "record/restarts.h"
#include "record/result_file.h"
#include "record/series.h"
#include "record/summary.h"
#include "record/trace_file.h"
#include "record/turns.h"
#include "save/snapshot.h"

/* A worker's compute threads, as its plugins want them in the environment; and all cores. */
static dpb_status worker_threads(const struct dpb_experiment *experiment,
                                 const struct dpb_party *party, uint32_t *threads, uint32_t *n_all)
{
    const struct dpb_seat all = {.n_workers = experiment->n_workers,
                                 .n_servers = experiment->n_servers};
    const struct dpb_seat *seat = party ? &party->seats[dpb_party_first(party, party->part)] : &all;
    const struct dpb_cores_job job = dpb_binding_job(experiment, seat);
    uint32_t n_cores;
    DPB_TRY(dpb_cores_available(&n_cores));
    const struct dpb_cores_share share = dpb_cores_place(n_cores, &job, 0);
    *threads = share.threads;
    *n_all = share.n_all;
    return DPB_OK;
}

static void measure_core_latency(const struct dpb_experiment *experiment,
                                 struct dpb_board_about *about)
{
    const struct dpb_seat all = {.n_workers = experiment->n_workers,
                                 .n_servers = experiment->n_servers};
    const struct dpb_cores_job job = dpb_binding_job(experiment, &all);
    if (dpb_cores_of(&job, 0, &about->ends[0], 1) == 0 ||
        dpb_cores_of(&job, experiment->n_workers - 1, &about->ends[1], 1) == 0)
        about->ends[1] = about->ends[0];
    about->core_to_core_ns = dpb_core_latency_ns(about->ends[0], about->ends[1]);
}

/* Describes the job that is shown, for its board. */
static struct dpb_board_about about_of(const struct dpb_experiment *experiment,
                                       const struct dpb_party *party,
                                       const struct dpb_live_place *place)
{
    struct dpb_board_about about = {
        .began_ns = dpb_now_ns(),
        .command_ns = dpb_program_began_ns,
        .usual_s = place->n_ended > 0 ? place->ended_s / (double)place->n_ended : NAN,
        .n_left = place->n_left,
        .record_bytes = sizeof(struct dpb_record),
        .emulated = dpb_experiment_emulates(experiment),
        .core_to_core_ns = NAN,
        .dilation = experiment->settings.run.dilation};
    if (dpb_mode_has_steps(experiment->settings.run.mode))
        about.step_samples = experiment->global_batch;
    if (dpb_party_is_head(party)) {
        char label[sizeof about.label];
        snprintf(label, sizeof label, "%s", place->label);
        dpb_escape(label, strlen(label), about.label, sizeof about.label);
    }
    if (!party)
        measure_core_latency(experiment, &about);
    return about;
}

/* For struct dpb_job. */
static bool is_warm(struct dpb_board *board)
{
    bool all = true;
    for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++) {
        const struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        all &=
            dpb_board_page(board, rank)->role != DPB_WORKER ||
            __atomic_load_n(&journal->timed_from, __ATOMIC_RELAXED) < dpb_journal_records(journal);
    }
    return all;
}

static void clean_up_checkpoint(const struct dpb_experiment *experiment, struct dpb_board *board)
{
    uint32_t n = dpb_board_ranks(board);
    int32_t *pids = calloc(n, sizeof *pids);
    for (uint32_t rank = 0; pids && rank < n; rank++)
        pids[rank] = dpb_board_page(board, rank)->pid;
    if (pids)
        dpb_snapshot_clean_up(experiment->settings.checkpoint.save, pids, n);
    free(pids);
}

static dpb_status start_again(void *context, const struct dpb_loss *loss, struct dpb_board *board,
                              struct dpb_again *again)
{
    const struct dpb_restarts *restarts = context;
    clean_up_checkpoint(restarts->experiment, board);
    return dpb_restarts_again(context, loss, board, again);
}

/* `restarts`: of dpb_restarts_open; NULL: the command has no run.restart. */
static dpb_status launch(const struct dpb_experiment *experiment, struct dpb_party *party,
                         const struct dpb_live_place *place, struct dpb_restarts *restarts,
                         struct dpb_job_outcome *outcome)
{
    uint32_t threads = 1, n_all = 0;
    if (place->orders > 0)
        DPB_TRY(dpb_refuse_turns(experiment));
    if (!party)
        DPB_TRY(dpb_fit_processes(experiment));
    DPB_TRY(worker_threads(experiment, party, &threads, &n_all));
    json_t *json = dpb_config_to_json(experiment->config);
    char *text = !json ? NULL : json_dumps(json, JSON_COMPACT);
    const char *const *environment = dpb_experiment_environment(experiment, threads);
    dpb_status status = dpb_allocated(text && environment);
    if (status == DPB_OK) {
        struct dpb_job job = {
            .n_workers = experiment->n_workers,
            .n_servers = experiment->n_servers,
            .machines = experiment->machines,
            .config = text,
            .journal_bytes = place->journal_bytes > 0 ? place->journal_bytes
                                                      : dpb_experiment_journal_bytes(experiment),
            .environment = environment,
            .timeout_ns = experiment->settings.run.timeout_ns,
            .stall_warning_ns = experiment->settings.run.stall_warning_ns,
            .survive = experiment->settings.run.survive,
            .again = start_again,
            .follow = dpb_restarts_follow,
            .context = restarts,
            .party = party,
            .shape = dpb_experiment_journal_shape(experiment),
            .orders = place->orders,
            .cores = n_all,
            .warm = is_warm,
            .rate = dpb_turns_rate,
            .sample = experiment->settings.run.monitor_ns > 0 ? dpb_monitor_turn : NULL,
            .keep_pmix = dpb_experiment_needs_launcher(experiment),
            .about = about_of(experiment, party, place),
            .live = dpb_live_line,
        };
        if (restarts) {
            job.restarts = (uint32_t)experiment->settings.run.restart;
            job.rejoin_ns = experiment->settings.run.rejoin_ns;
            job.kept = restarts->kept;
        }
        status = dpb_launch(&job, outcome);
    }
    free((void *)(uintptr_t)environment);
    free(text);
    json_decref(json);
    return status;
}

static void execute_job(const struct dpb_experiment *experiment, struct dpb_party *party,
                        const struct dpb_live_place *place, struct dpb_restarts *restarts,
                        struct dpb_job_outcome *outcome)
{
    dpb_status status = launch(experiment, party, place, restarts, outcome);
    if (status != DPB_OK)
        *outcome =
            (struct dpb_job_outcome){.status = status, .exit_code = dpb_status_exit_code(status)};
}

void dpb_execute_job(const struct dpb_experiment *experiment, struct dpb_party *party,
                     const struct dpb_live_place *place, struct dpb_job_outcome *outcome)
{
    execute_job(experiment, party, place, NULL, outcome);
}

/* Applies eval.require_target and run.require_steady to a job that went well. */
static dpb_status check_demands(const struct dpb_experiment *experiment, struct dpb_board *board,
                                char *error, size_t capacity)
{
    const struct dpb_settings *settings = &experiment->settings;
    const struct dpb_journal *journal = dpb_board_journal(board, 0, NULL);
    if (settings->eval.require_target && journal->target_met == 0) {
        const double loss = settings->eval.target_loss;
        snprintf(error, capacity,
                 journal->n_evals > 0
                     ? "the run did not reach eval.%s = %.6g"
                     : "nothing was evaluated: the run ended before its first evaluation, so "
                       "whether it reached eval.%s = %.6g is not known; evaluate more often",
                 loss > 0 ? "target_loss" : "target", loss > 0 ? loss : settings->eval.target);
        return dpb_fail(DPB_REGRESSION, "%s", error);
    }
    if (!settings->run.require_steady || journal->steady)
        return DPB_OK;
    snprintf(error, capacity,
             journal->gated
                 ? "step times were not steady within run.steady_limit_s = %g s; quieten the "
                   "machine, or widen run.steady_drift and run.steady_spread"
                 : "run.require_steady needs the steady-state gate, and run.steady_limit_s = %g "
                   "switches it off",
             (double)settings->run.steady_limit_ns / 1e9);
    return dpb_fail(DPB_NOT_STEADY, "%s", error);
}

void dpb_execute(const struct dpb_experiment *experiment, struct dpb_party *party,
                 const struct dpb_live_place *place, struct dpb_execution *execution)
{
    struct dpb_job_outcome outcome;
    struct dpb_restarts restarts;
    json_t *inputs = dpb_result_inputs(experiment); /* before the run may change them */
    dpb_status status = dpb_restarts_open(experiment, &restarts);
    if (status == DPB_OK)
        execute_job(experiment, party, place, &restarts, &outcome);
    else
        outcome =
            (struct dpb_job_outcome){.status = status, .exit_code = dpb_status_exit_code(status)};
    status = outcome.status;
    int exit_code = outcome.exit_code;
    if (!outcome.board) {
        dpb_restarts_close(&restarts);
        json_decref(inputs);
        *execution = (struct dpb_execution){status, exit_code, NULL};
        return;
    }
    if (status != DPB_OK)
        clean_up_checkpoint(experiment, outcome.board);
    if (status == DPB_OK) {
        status = check_demands(experiment, outcome.board, outcome.cause, sizeof outcome.cause);
        exit_code = dpb_status_exit_code(status);
    }
    exit_code = dpb_exit_code_first(
        exit_code, dpb_status_exit_code(dpb_trace_file(experiment, outcome.board, status)));
    dpb_turns_unpark(&outcome.turns, outcome.board);
    json_t *result = dpb_result_make(experiment, outcome.board, status,
                                     outcome.cause[0] != '\0' ? outcome.cause : NULL);
    if (!result) {
        status = dpb_fail(DPB_NO_MEMORY, "out of memory: the result of the run is lost");
        exit_code = dpb_exit_code_first(exit_code, dpb_status_exit_code(status));
    }
    if (status != DPB_OK)
        json_object_set_new(result, "failure", json_string(dpb_status_name(status)));
    dpb_turns_report(&outcome.turns, outcome.board, experiment, result);
    free(outcome.turns.at);
    dpb_restarts_report(&restarts, outcome.board, result);
    dpb_restarts_close(&restarts);
    json_object_set_new(result, "inputs", inputs);
    json_object_set_new(result, "invocation", dpb_result_invocation());
    dpb_board_destroy(outcome.board);
    *execution = (struct dpb_execution){status, exit_code, result};
}

static int to_stdout(const char *text, size_t n, void *unused)
{
    (void)unused;
    return fwrite(text, 1, n, stdout) == n ? 0 : -1;
}

void dpb_document_print(const json_t *document, bool json, dpb_print_document *print)
{
    dpb_stdout_back();
    if (json) {
        json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
        putchar('\n');
        return;
    }
    json_t *printable = dpb_json_printable(document);
    print(printable ? printable : document, stdout);
    json_decref(printable);
}

int dpb_document_deliver(const json_t *document, const struct dpb_arguments *arguments,
                         const char *results, const char *run_name, dpb_print_document *print)
{
    char written[PATH_MAX] = "";
    dpb_first_error_clear(); /* of the last run: a file that cannot be written is an error, too */
    dpb_status status =
        dpb_result_write(document, arguments->dump, arguments->output, results, run_name, written);
    if (status == DPB_OK && written[0] != '\0')
        dpb_log(DPB_LOG_INFO, "result: %s", written);
    dpb_stdout_back();
    if (arguments->jsonl)
        dpb_series_lines(document, stdout);
    else if (!arguments->json || !arguments->dump)
        dpb_document_print(document, arguments->json, print);
    else if (arguments->dump(document, to_stdout, NULL))
        putchar('\n');
    else if (!ferror(stdout))
        status = dpb_fail(DPB_NO_MEMORY, "the document is not whole: out of memory, or see above");
    const int code = dpb_status_exit_code(status);
    if (!arguments->demands || !dpb_json_is(document, "status", "ok"))
        return code;
    fflush(stdout);
    return dpb_exit_code_first(
        code, dpb_status_exit_code(dpb_demands_judge(arguments->demands, document)));
}

void dpb_document_set_launcher(json_t *document, const struct dpb_party *party)
{
    if (party)
        json_object_set_new(json_object_get(document, "world"), "launcher",
                            json_string(party->launcher));
}

int dpb_measured_deliver(json_t *document, int code, const struct dpb_arguments *arguments,
                         const char *results, const char *run_name, dpb_print_document *print)
{
    if (!document) {
        dpb_status status = dpb_fail(DPB_NO_MEMORY, "out of memory: the measurements are lost");
        return dpb_exit_code_first(code, dpb_status_exit_code(status));
    }
    dpb_document_set_launcher(document, arguments->party);
    if (code != dpb_status_exit_code(DPB_USAGE))
        code = dpb_exit_code_first(
            code, dpb_document_deliver(document, arguments, results, run_name, print));
    json_decref(document);
    return code;
}

/* ---- commands that measure in their own process ---------------------------------------------- */

volatile sig_atomic_t dpb_stop_signal;

static void on_signal(int number)
{
    static struct dpb_signals seen;
    if (!dpb_signals_interrupts(&seen, number))
        return;
    if (dpb_stop_signal != 0) { /* the second ends the process when this handler returns */
        signal(number, SIG_DFL);
        raise(number);
    }
    dpb_stop_signal = number;
}

void dpb_stop_on_signals(void)
{
    struct sigaction old[DPB_ENDING_SIGNALS];
    dpb_signals_handle(on_signal, old);
}

int dpb_stop_exit_code(dpb_status status)
{
    return status == DPB_INTERRUPTED ? 128 + (int)dpb_stop_signal : dpb_status_exit_code(status);
}

const char *dpb_stop_error(dpb_status status)
{
    static char reason[64];
    if (status != DPB_INTERRUPTED)
        return status == DPB_OK ? NULL : dpb_first_error(NULL);
    snprintf(reason, sizeof reason, "by signal %d (%s)", (int)dpb_stop_signal,
             strsignal((int)dpb_stop_signal));
    return reason;
}

int dpb_measure(const struct dpb_arguments *arguments, dpb_make_experiment *make,
                dpb_run_experiment *run)
{
    struct dpb_experiment *experiment = NULL;
    int code;
    dpb_stdout_aside();
    dpb_status status = make(arguments->config, &experiment);
    if (status == DPB_OK && dpb_party_is_head(arguments->party))
        status = dpb_result_probe(arguments->output, "");
    struct dpb_named_file files[DPB_ARGUMENTS_FILES];
    dpb_arguments_files(arguments, files);
    DPB_THEN(status, dpb_outputs_apart(files, DPB_ARGUMENTS_FILES));
    if (dpb_together_agree(arguments, status, experiment, &code) == DPB_OK)
        code = run(experiment, arguments);
    dpb_experiment_destroy(experiment);
    return code;
}

int dpb_command_alone(const struct dpb_command *self, int argc, char **argv,
                      dpb_make_experiment *make, dpb_run_experiment *run)
{
    struct dpb_arguments arguments;
    dpb_status status = dpb_arguments_parse(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT, NULL,
                                            argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    const int code = dpb_measure(&arguments, make, run);
    dpb_arguments_release(&arguments);
    return code;
}
