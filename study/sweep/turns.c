/* turns.c - see turns.h. */
#include "study/sweep/turns.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/json.h"
#include "base/log.h"
#include "dpbench/random.h"
#include "machine/cgroup.h"
#include "machine/cores.h"
#include "plan/fit.h"
#include "plan/refuse.h"
#include "study/document/comparison.h"
#include "study/document/signed_rank.h"
#include "study/sweep/sweep.h"

enum { STEPS = 5, ENOUGH = 3, ORDER = 128 }; /* ENOUGH: to know the time of a step */
static const double least_s = 0.1, least_with_quota_s = 0.5, most_s = 60, long_block_s = 3;
#define KILL_NS INT64_C(3000000000) /* from a second signal */

/* ---- what cells need ----------------------------------------------------------------------- */

static dpb_status look_at(const struct dpb_sweep *sweep, size_t cell, struct dpb_turns_needs *needs)
{
    const struct dpb_sweep_job job = {.cell = cell};
    struct dpb_experiment *experiment = NULL;
    struct dpb_fit fit;
    if (dpb_sweep_experiment(sweep, &job, &experiment) != DPB_OK) {
        dpb_first_error_clear(); /* its run repeats the refusal */
        return DPB_OK;
    }
    dpb_status status = dpb_refuse_turns(experiment);
    if (status == DPB_OK && dpb_fit_build(experiment, experiment->n_workers, true) == DPB_OK) {
        dpb_fit_of(experiment, UINT32_MAX, &fit);
        needs->bytes[cell] = fit.all_bytes;
        needs->seconds[cell] = (double)experiment->settings.run.seconds_ns * 1e-9;
    }
    dpb_experiment_destroy(experiment);
    return status;
}

dpb_status dpb_turns_needs(const struct dpb_sweep *sweep, struct dpb_turns_needs *needs)
{
    const struct dpb_log_hooks silent = {.silent = true};
    needs->bytes = calloc(sweep->n_cells, sizeof *needs->bytes);
    needs->seconds = calloc(sweep->n_cells, sizeof *needs->seconds);
    DPB_TRY(dpb_allocated(needs->bytes && needs->seconds));
    dpb_log_set_hooks(&silent);
    dpb_status status = sweep->options.launch[0] == '\0'
                            ? DPB_OK
                            : dpb_fail(DPB_UNSUPPORTED, "sweep.launch starts its jobs");
    for (size_t cell = 0; cell < sweep->n_cells && status == DPB_OK; cell++)
        status = look_at(sweep, cell, needs);
    dpb_log_set_hooks(NULL);
    return status;
}

void dpb_turns_needs_release(struct dpb_turns_needs *needs)
{
    free(needs->bytes);
    free(needs->seconds);
}

size_t dpb_turns_group_fill(const struct dpb_turns_needs *needs, const struct dpb_sweep_job *jobs,
                            size_t n, struct dpb_turns_group *group)
{
    struct dpb_machine_memory memory;
    dpb_memory_look("", &memory);
    uint64_t left = memory.available_bytes;
    size_t taken = 0;
    group->n = 0;
    if (jobs[0].cell != 0)
        group->jobs[group->n++] = (struct dpb_sweep_job){.cell = 0, .repeat = jobs[0].repeat};
    left -= group->n > 0 && needs->bytes[0] < left ? needs->bytes[0] : 0;
    while (taken < n && (group->n < 2 || needs->bytes[jobs[taken].cell] <= left)) {
        const uint64_t bytes = needs->bytes[jobs[taken].cell];
        left -= bytes < left ? bytes : left;
        group->jobs[group->n++] = jobs[taken++];
    }
    return taken;
}

/* ---- cells that run ------------------------------------------------------------------------ */

struct one {
    const struct dpb_sweep_job *job;
    struct dpb_cell_run run;
    int orders;    /* -1: it is not there */
    size_t index;  /* in the group */
    double wants;  /* seconds of its next turn */
    double step_s; /* of its fastest turn, whose length no disturbance has stretched; 0: none yet */
};

struct table {
    struct dpb_turns_group *group;
    struct one *ones;
    struct pollfd *fds; /* the signals', then each one's */
    struct dpb_signals signals;
    int number; /* the last signal that ends all; 0: none */
    struct dpb_deadline kill_at;
    int64_t first;    /* block of the group */
    double *rates;    /* @owned: samples/s by block, then by cell; NaN: not known, or not yet */
    size_t n_blocks;  /* that rates[] has room for */
    size_t planned;   /* blocks, at most; 0: there are no looks, or not yet */
    bool has_decided; /* at a look */
    bool is_full;     /* further blocks would be in no unit */
};

/* An answer of launch/turns.h. */
struct answer {
    int64_t at_ns, steps, block;
    double rate; /* of that block; NaN: none is told */
};

static const struct dpb_cells *cells_of(const struct table *table, const struct one *one)
{
    return table->group->cells[one->index > 0];
}

static void has_ended(struct table *table, struct one *one, dpb_status status)
{
    struct dpb_execution execution;
    close(one->orders);
    one->orders = -1;
    dpb_cell_end(cells_of(table, one), &one->run, status, &execution);
    json_t *turns = json_object_get(execution.result, "turns");
    if (turns && table->planned > 0) {
        json_object_set_new(turns, "planned", json_integer((json_int_t)table->planned));
        json_object_set_new(turns, "decided", json_boolean(table->has_decided));
    }
    table->group->ended(table->group->context, one->job, &execution);
}

static size_t count_there(const struct table *table)
{
    size_t n = 0;
    for (size_t i = 0; i < table->group->n; i++)
        n += table->ones[i].orders >= 0;
    return n;
}

static void suspend(const struct table *table)
{
    const struct dpb_child_running *all[DPB_JOB_RANKS];
    size_t n = 0;
    for (size_t i = 0; i < table->group->n && n < DPB_JOB_RANKS; i++)
        if (table->ones[i].orders >= 0)
            all[n++] = &table->ones[i].run.running;
    dpb_child_suspend(all, n);
}

static void pass_on(const struct table *table, int number)
{
    for (size_t i = 0; i < table->group->n; i++)
        if (table->ones[i].orders >= 0)
            kill(number == SIGKILL ? -table->ones[i].run.running.pid
                                   : table->ones[i].run.running.pid,
                 number);
}

static void take_signals(struct table *table)
{
    struct signalfd_siginfo info;
    while (read(table->fds[0].fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int number = (int)info.ssi_signo;
        if (number == SIGTSTP)
            suspend(table);
        if (!dpb_signals_interrupts(&table->signals, number))
            continue;
        if (table->number != 0)
            table->kill_at = dpb_deadline_in(KILL_NS);
        table->number = number;
        pass_on(table, number);
    }
    if (dpb_deadline_passed(table->kill_at))
        pass_on(table, SIGKILL);
}

static void order(const struct one *one, const char *text)
{
    (void)send(one->orders, text, strlen(text), MSG_NOSIGNAL); /* one that is gone shows in poll */
}

/* The next packet of one that has something to say. */
static bool hear(struct table *table, struct one *one, struct answer *answer)
{
    char text[ORDER] = "";
    const ssize_t n = recv(one->orders, text, sizeof text - 1, MSG_DONTWAIT);
    if (n <= 0) {
        one->run.end.signal_number = table->number;
        has_ended(table, one, dpb_child_take(&one->run.running, &one->run.end));
        return false;
    }
    answer->rate = NAN;
    if (sscanf(text, "%*s %" SCNd64 " %" SCNd64 " %" SCNd64 " %lf", &answer->at_ns, &answer->steps,
               &answer->block, &answer->rate) < 2 ||
        strncmp(text, "refused", 7) == 0) {
        order(one, "end"); /* it can have no more turns */
        return false;
    }
    return true;
}

/* Until `asked` answers: true; or has ended, or `until` has passed. */
static bool await(struct table *table, struct one *asked, struct dpb_deadline until,
                  struct answer *answer)
{
    const size_t n = table->group->n;
    bool answered = false;
    while (!answered && asked->orders >= 0 && !dpb_deadline_passed(until)) {
        for (size_t i = 0; i < n; i++)
            table->fds[1 + i] = (struct pollfd){.fd = table->ones[i].orders, .events = POLLIN};
        poll(table->fds, n + 1, dpb_deadline_look_ms(until));
        take_signals(table);
        for (size_t i = 0; i < n; i++) {
            struct one *one = &table->ones[i];
            struct answer heard;
            if (table->fds[1 + i].revents == 0 || one->orders < 0 || !hear(table, one, &heard) ||
                one != asked)
                continue;
            *answer = heard;
            answered = true;
        }
    }
    return answered;
}

/* A run whose length is its seconds ends by `end`. */
static dpb_status configure(const struct table *table, const struct one *one,
                            struct dpb_config **config)
{
    const struct dpb_turns_group *group = table->group;
    char seconds[32];
    DPB_TRY(dpb_sweep_config(group->cells[0]->sweep, one->job, config));
    if (!dpb_config_get(*config, "run", "seconds"))
        return DPB_OK;
    snprintf(seconds, sizeof seconds, "%.0f", ceil(group->budget_s) + most_s);
    return dpb_config_set(*config, "run", "seconds", seconds, "sweep.turns");
}

static void start(struct table *table, struct one *one)
{
    struct dpb_config *config = NULL;
    struct answer answer;
    int ends[2] = {-1, -1};
    one->orders = -1;
    dpb_first_error_clear();
    dpb_warnings_clear();
    one->run = (struct dpb_cell_run){0};
    dpb_status status = configure(table, one, &config);
    if (status == DPB_OK && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        status = dpb_fail(DPB_FAILED, "cannot open a socket for a cell: %m");
    const struct dpb_live_place place = {.label = "", .orders = ends[1]};
    DPB_THEN(status,
             dpb_cell_start(cells_of(table, one), config, &place, &table->signals, &one->run));
    dpb_config_destroy(config);
    if (ends[1] >= 0)
        close(ends[1]);
    one->orders = ends[0];
    if (status != DPB_OK)
        has_ended(table, one, status);
    else
        await(table, one, dpb_deadline_in(-1), &answer);
}

/* ---- turns --------------------------------------------------------------------------------- */

static void plan_turn(const struct dpb_sweep *sweep, struct one *one)
{
    char quota[DPB_CGROUP_QUOTA];
    uint32_t n_cores = 1;
    dpb_cores_available(&n_cores);
    const bool asked = sweep->turns.steps > 0;
    const double least = asked                                                  ? 0.05
                         : dpb_cgroup_name_quota("", n_cores, quota)[0] != '\0' ? least_with_quota_s
                                                                                : least_s;
    const double steps = asked ? (double)sweep->turns.steps : STEPS;
    if (sweep->turns.ns > 0)
        one->wants = (double)sweep->turns.ns * 1e-9;
    else if (one->wants == 0)
        one->wants = least;
    else if (one->step_s == 0)
        one->wants = fmin(2 * one->wants, most_s);
    else
        one->wants = fmax(least, 0.02 + steps * one->step_s);
}

static void take_turn(struct table *table, struct one *one)
{
    char text[ORDER];
    struct answer went, parked;
    snprintf(text, sizeof text, "go %" PRId64, table->group->block);
    order(one, text);
    if (!await(table, one, dpb_deadline_in(-1), &went))
        return;
    await(table, one, dpb_deadline_in((int64_t)(one->wants * 1e9)), &parked);
    if (one->orders < 0)
        return;
    order(one, "park");
    if (!await(table, one, dpb_deadline_in(-1), &parked))
        return;
    const int64_t of = parked.block - table->first;
    if (isfinite(parked.rate) && of >= 0 && of < (int64_t)table->n_blocks)
        table->rates[(size_t)of * table->group->n + one->index] = parked.rate;
    const int64_t done = parked.steps - went.steps;
    const double step_s = (double)(parked.at_ns - went.at_ns) * 1e-9 / (double)done;
    if (done >= ENOUGH && (one->step_s == 0 || step_s < one->step_s))
        one->step_s = step_s;
    plan_turn(table->group->cells[0]->sweep, one);
}

/* Every cell once, in random order. */
static void run_block(struct table *table, size_t *order_of)
{
    const struct dpb_turns_group *group = table->group;
    for (size_t i = 0; i < group->n; i++)
        order_of[i] = i;
    for (size_t i = group->n; i > 1; i--) { /* Fisher and Yates */
        const struct dpb_random4 r =
            dpb_random(group->seed, DPB_STREAM_SHUFFLE, (uint32_t)i, (uint32_t)group->block, 2, 0);
        const size_t j = (((uint64_t)r.v[0] << 32) | r.v[1]) % i, other = order_of[i - 1];
        order_of[i - 1] = order_of[j];
        order_of[j] = other;
    }
    for (size_t i = 0; i < group->n && table->number == 0; i++)
        if (table->ones[order_of[i]].orders >= 0)
            take_turn(table, &table->ones[order_of[i]]);
}

/* ---- looks --------------------------------------------------------------------------------- */

/* Room for the next block's rates. */
static bool add_block(struct table *table)
{
    const size_t n = table->group->n;
    double *rates = realloc(table->rates, (table->n_blocks + 1) * n * sizeof *rates);
    if (!rates)
        return false;
    table->rates = rates;
    for (size_t i = 0; i < n; i++)
        rates[table->n_blocks * n + i] = NAN;
    table->n_blocks++;
    return true;
}

/* Before the first look, once all turns have their length. Time between turns is left out, so fewer
 * blocks follow than are planned, and units have room for all of them. */
static void plan_looks(struct table *table, double left_s)
{
    const int64_t fixed_ns = table->group->cells[0]->sweep->turns.ns;
    double block_s = 0;
    if (table->n_blocks < DPB_LOOK_FIRST)
        return;
    for (size_t i = 0; i < table->group->n; i++) {
        const struct one *one = &table->ones[i];
        if (one->orders >= 0 && one->step_s == 0 && fixed_ns == 0)
            return;
        block_s += one->orders >= 0 ? one->wants : 0;
    }
    if (block_s > 0)
        table->planned = table->n_blocks + (size_t)ceil(left_s / block_s);
}

/* Whether the ratios by the first cell are decided. The last block's rates are not known yet. */
static bool look(const struct table *table, double *x)
{
    const size_t n = table->group->n, n_blocks = table->n_blocks - 1;
    const struct dpb_looks looks = {.planned = table->planned};
    bool decided = table->ones[0].orders >= 0;
    size_t n_asked = 0;
    for (size_t i = 1; i < n && decided; i++) {
        struct dpb_comparison c;
        if (table->ones[i].orders < 0)
            continue; /* further blocks bring it nothing */
        for (size_t k = 0; k < n_blocks; k++)
            x[k] = log(table->rates[k * n + i] / table->rates[k * n]);
        dpb_compare_blocks(x, n_blocks, &looks, DPB_MARGIN, &c);
        decided = c.outcome != DPB_UNDECIDED && c.outcome != DPB_NOT_MEASURED;
        n_asked++;
    }
    return decided && n_asked > 0;
}

/* After a block. */
static void look_at_blocks(struct table *table, double left_s)
{
    if (!table->group->looks || table->number != 0)
        return;
    if (table->planned == 0)
        plan_looks(table, left_s);
    double *x = calloc(table->n_blocks, sizeof *x);
    if (x && table->planned > 0)
        table->has_decided = look(table, x);
    free(x);
    const size_t each = (table->planned + DPB_LOOK_UNITS - 1) / DPB_LOOK_UNITS;
    table->is_full = table->planned > 0 && table->n_blocks > DPB_LOOK_UNITS * each;
}

static void run_blocks(struct table *table, size_t *order_of)
{
    struct dpb_turns_group *group = table->group;
    const int64_t began_ns = dpb_ran_ns();
    double took_s = 0;
    bool said = false;
    table->first = group->block;
    while (count_there(table) > 0 && !table->has_decided && !table->is_full && add_block(table) &&
           table->number == 0 && took_s < group->budget_s && !dpb_deadline_passed(group->before)) {
        const double before_s = took_s;
        run_block(table, order_of);
        group->block++;
        took_s = (double)(dpb_ran_ns() - began_ns) * 1e-9;
        if (took_s - before_s > long_block_s && !said)
            dpb_log(DPB_LOG_INFO,
                    "a block takes %.1f s: what changes faster than that does not meet all cells "
                    "alike; sweep.turns has shorter turns, and fewer cells shorter blocks",
                    took_s - before_s);
        said = said || took_s - before_s > long_block_s;
        look_at_blocks(table, group->budget_s - took_s);
    }
    if (!group->quiet)
        dpb_log(DPB_LOG_INFO, "%" PRId64 " blocks of %zu cells in %.1f s%s",
                group->block - table->first, group->n, took_s,
                table->has_decided ? " have decided" : "");
}

static void run_all(struct table *table, size_t *order_of)
{
    const struct dpb_turns_group *group = table->group;
    struct answer answer;
    for (size_t i = 0; i < group->n; i++)
        table->ones[i] = (struct one){.job = &group->jobs[i], .orders = -1, .index = i};
    for (size_t i = 0; i < group->n && table->number == 0; i++) {
        plan_turn(group->cells[0]->sweep, &table->ones[i]);
        start(table, &table->ones[i]);
    }
    if (table->number == 0 && !group->quiet)
        dpb_log(DPB_LOG_INFO, "%zu cells side by side, in turns", count_there(table));
    run_blocks(table, order_of);
    for (size_t i = 0; i < group->n; i++) {
        struct one *one = &table->ones[i];
        if (one->orders >= 0)
            order(one, "end");
        while (one->orders >= 0)
            await(table, one, dpb_deadline_in(-1), &answer);
    }
}

dpb_status dpb_turns_run(struct dpb_turns_group *group)
{
    struct table table = {.group = group,
                          .ones = calloc(group->n, sizeof *table.ones),
                          .fds = calloc(group->n + 1, sizeof *table.fds),
                          .kill_at = dpb_deadline_in(-1)};
    size_t *order_of = calloc(group->n, sizeof *order_of);
    dpb_status status = dpb_allocated(table.ones && table.fds && order_of);
    if (status == DPB_OK) {
        dpb_signals_hold(&table.signals, SIGCHLD, SIGTSTP);
        table.fds[0] = (struct pollfd){
            .fd = signalfd(-1, &table.signals.held, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN};
        if (table.fds[0].fd < 0)
            status = dpb_fail(DPB_FAILED, "cannot take signals: %m");
        else
            run_all(&table, order_of);
        if (table.fds[0].fd >= 0)
            close(table.fds[0].fd);
        dpb_signals_release(&table.signals);
    }
    free(order_of);
    free(table.rates);
    free(table.fds);
    free(table.ones);
    return status;
}
