/* account.c - interval arithmetic on the spans of a step: see account.h. */
#include "measure/account.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/log.h"
#include "measure/trace.h"
#include "world/futex.h"
#include "world/world.h"

struct interval {
    int64_t begin, end;
};

/* Intervals of one kind. Several threads append; the loop's thread reads at the end of the step.
 * With comm.late an exchange continues meanwhile. */
struct series {
    struct interval *at;
    uint64_t n;          /* may exceed the capacity: the rest was dropped */
    uint64_t n_later;    /* the last ones: they begin behind the step that was taken */
    int64_t crossing_ns; /* the latest end of those that cross that step's end */
};

enum { EXPOSED, UPDATE, COMM, WAIT, N_SERIES };

static pthread_mutex_t series_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct dpb_journal *journal;
    struct series series[N_SERIES];
    uint64_t capacity;
    uint32_t n_taken; /* steps that have got their spans */
    uint64_t bytes;
    bool running;
    int64_t stopped_ns;        /* end of the last step before a pause; 0: none */
    int64_t missed_ns;         /* dpb_missed_ns when the step began */
    int64_t parked_ns;         /* likewise, of the board's turns */
    int64_t marked_ns;         /* end of the last part */
    int64_t exposed_ns;        /* since then */
    int64_t exposed_before_ns; /* of the step, until then */
    uint32_t entered;          /* calls of dpb_account_enter without a leave */
    uint64_t next_ready;       /* of journal->ready */
    struct dpb_record record;
    struct dpb_coding coding; /* of the step */
    bool by_device, updates_only;
    bool awaits_device;
    struct dpb_record ended; /* awaits the device's times */
} account;

/* By the device, spans of two steps wait: of the step that awaits its times, and of the next. Most
 * of the room is never touched: small pages, which calloc gives, are fewer bytes to clear. */
dpb_status dpb_account_open(struct dpb_journal *journal, size_t capacity)
{
    account.journal = journal;
    journal->opened_ns = journal->spent_from_ns = dpb_now_ns();
    account.capacity = 2 * capacity;
    for (int s = 0; s < N_SERIES; s++) {
        account.series[s].at = calloc(account.capacity, sizeof(struct interval));
        DPB_TRY(dpb_allocated(account.series[s].at));
    }
    return DPB_OK;
}

void dpb_account_close(void)
{
    for (int s = 0; s < N_SERIES; s++)
        free(account.series[s].at);
    memset(&account, 0, sizeof account);
}

dpb_spent dpb_account_spend(dpb_spent part)
{
    struct dpb_journal *journal = account.journal;
    const int64_t now_ns = dpb_now_ns();
    if (!journal)
        return part;
    const dpb_spent before = journal->spending;
    journal->spent_ns[before] += now_ns - journal->spent_from_ns;
    journal->spent_from_ns = now_ns;
    journal->spending = part;
    return before;
}

/* With the lock. */
static void append(struct series *series, int64_t begin_ns, int64_t end_ns)
{
    const uint64_t i = series->n++;
    if (i < account.capacity)
        series->at[i] = (struct interval){begin_ns, end_ns};
}

static void append_exposed(int64_t begin_ns, int64_t end_ns)
{
    pthread_mutex_lock(&series_lock);
    append(&account.series[EXPOSED], begin_ns, end_ns);
    pthread_mutex_unlock(&series_lock);
}

/* ---- sets of disjoint rising intervals ----------------------------------------------------- */

/* Shellsort with Knuth's gaps: it neither allocates nor recurses, and it is fast both on spans that
 * come nearly in order and on those of many threads. */
static void sort(struct interval *at, uint64_t n)
{
    uint64_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (uint64_t i = gap; i < n; i++) {
            struct interval moving = at[i];
            uint64_t j = i;
            for (; j >= gap && at[j - gap].begin > moving.begin; j -= gap)
                at[j] = at[j - gap];
            at[j] = moving;
        }
}

/* Sorts a series, clips it to the step and joins intervals that touch; the number that is left. */
static uint64_t make_union(struct series *series, struct interval step)
{
    uint64_t n = series->n < account.capacity ? series->n : account.capacity, kept = 0;
    if (series->n > n)
        account.journal->dropped_spans += series->n - n;
    sort(series->at, n);
    series->n_later = 0;
    series->crossing_ns = step.end;
    for (uint64_t i = 0; i < n; i++) {
        struct interval one = series->at[i];
        series->n_later += account.by_device && one.begin >= step.end;
        if (account.by_device && one.begin < step.end && one.end > series->crossing_ns)
            series->crossing_ns = one.end;
        one.begin = one.begin > step.begin ? one.begin : step.begin;
        one.end = one.end < step.end ? one.end : step.end;
        if (one.end <= one.begin)
            continue;
        if (kept > 0 && one.begin <= series->at[kept - 1].end) {
            if (one.end > series->at[kept - 1].end)
                series->at[kept - 1].end = one.end;
        } else {
            series->at[kept++] = one;
        }
    }
    series->n = n;
    return kept;
}

static int64_t length(const struct interval *at, uint64_t n)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += at[i].end - at[i].begin;
    return sum;
}

static int64_t intersection(const struct interval *a, uint64_t n_a, const struct interval *b,
                            uint64_t n_b)
{
    int64_t sum = 0;
    for (uint64_t i = 0, j = 0; i < n_a && j < n_b;) {
        int64_t begin = a[i].begin > b[j].begin ? a[i].begin : b[j].begin;
        int64_t end = a[i].end < b[j].end ? a[i].end : b[j].end;
        if (end > begin)
            sum += end - begin;
        if (a[i].end < b[j].end)
            i++;
        else
            j++;
    }
    return sum;
}

/* ---- a step -------------------------------------------------------------------------------- */

/* Intervals behind a device step's end belong to the next step: with comm.late the host may get
 * them before it gets the step's times. Intervals that cross the end become one, in the place of
 * the first of them. With the lock. */
static void drop_earlier(struct series *series, int64_t end_ns)
{
    const uint64_t first = series->n - series->n_later, crosses = series->crossing_ns > end_ns;
    memmove(series->at + crosses, series->at + first, series->n_later * sizeof *series->at);
    if (crosses)
        series->at[0] = (struct interval){end_ns, series->crossing_ns};
    series->n = crosses + series->n_later;
}

/* Empties the series into a record whose begin and length are known. Returns the time that was
 * exposed. */
static int64_t take_series(struct dpb_record *record)
{
    struct series *series = account.series;
    struct interval step = {record->begin_ns, record->begin_ns + record->step_ns};
    pthread_mutex_lock(&series_lock);
    uint64_t n_exposed = make_union(&series[EXPOSED], step);
    uint64_t n_update = make_union(&series[UPDATE], step);
    uint64_t n_comm = make_union(&series[COMM], step);
    uint64_t n_wait = make_union(&series[WAIT], step);

    record->optimizer_ns = intersection(series[EXPOSED].at, n_exposed, series[UPDATE].at, n_update);
    record->comm_hidden_ns = length(series[COMM].at, n_comm) -
                             intersection(series[COMM].at, n_comm, series[EXPOSED].at, n_exposed);
    record->comm_wait_peer_ns = length(series[WAIT].at, n_wait);
    record->comm_exposed_wait_ns =
        intersection(series[EXPOSED].at, n_exposed, series[WAIT].at, n_wait);
    const int64_t exposed_ns = length(series[EXPOSED].at, n_exposed);
    for (int s = 0; s < N_SERIES; s++)
        drop_earlier(&series[s], step.end);
    account.n_taken++;
    pthread_mutex_unlock(&series_lock);
    return exposed_ns;
}

/* Whether the step was parked (launch/turns.h): a duration within it may be of any length. */
static bool is_cut(void)
{
    return dpb_parked_ns() != account.parked_ns;
}

static int64_t undilated(int64_t ns)
{
    const double dilation = account.journal->dilation;
    return dilation > 1 ? llround((double)ns / dilation) : ns;
}

/* What is left of a step that is rounded once is backward's, so that the parts add up. */
static void undilate(struct dpb_record *record)
{
    int64_t *const parts[] = {&record->begin_ns,
                              &record->paused_ns,
                              &record->data_wait_ns,
                              &record->forward_ns,
                              &record->delay_ns,
                              &record->optimizer_ns,
                              &record->comm_exposed_ns,
                              &record->comm_hidden_ns,
                              &record->comm_wait_peer_ns,
                              &record->comm_exposed_wait_ns,
                              &record->step_ns};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] = undilated(*parts[i]);
    record->backward_ns = record->step_ns - record->data_wait_ns - record->forward_ns -
                          record->delay_ns - record->optimizer_ns - record->comm_exposed_ns;
}

static void keep(const struct dpb_record *record)
{
    struct dpb_journal *journal = account.journal;
    journal->ended_ns = record->begin_ns + record->step_ns;
    if (journal->n_records >= journal->capacity) {
        journal->unrecorded++;
        return;
    }
    dpb_trace(DPB_TRACE_STEP, journal->n_records, record->begin_ns,
              record->begin_ns + record->step_ns);
    journal->records[journal->n_records] = *record;
    if (journal->dilation > 1)
        undilate(&journal->records[journal->n_records]);
    __atomic_store_n(&journal->n_records, journal->n_records + 1, __ATOMIC_RELEASE);
}

/* Keeps the coding of the step that ends: before `keep`, which is later for a device's step. */
static void keep_coding(void)
{
    struct dpb_journal *journal = account.journal;
    if (journal->n_records >= journal->capacity || journal->n_records < journal->timed_from ||
        is_cut())
        return;
    dpb_coding_add(&journal->coding, &account.coding);
    journal->coded_steps++;
}

/* The bytes of the step are known; the device reports the rest. */
static void end_step_of_device(void)
{
    account.ended = account.record;
    account.ended.comm_bytes = __atomic_exchange_n(&account.bytes, 0, __ATOMIC_ACQ_REL);
    account.awaits_device = true;
    account.running = false;
}

void dpb_account_by_device(bool updates_only)
{
    account.by_device = account.journal->by_device = true;
    account.updates_only = updates_only;
}

bool dpb_account_awaits_device(void)
{
    return account.awaits_device;
}

void dpb_account_device(const struct dpb_device_times *times)
{
    struct series *series = account.series;
    struct dpb_record *record = &account.ended;
    int64_t exposed_ns = times->exchange_ns;
    record->begin_ns = times->begin_ns;
    /* The host sleeps while the device has nothing to do. */
    if (record->delay_ns > times->idle_ns)
        record->delay_ns = times->idle_ns;
    record->data_wait_ns = times->idle_ns - record->delay_ns;
    record->forward_ns = times->forward_ns;
    record->backward_ns = times->backward_ns;
    record->step_ns = times->idle_ns + times->forward_ns + times->backward_ns + exposed_ns;
    series[EXPOSED].n = 0; /* in the host's time, and of the next step */
    append_exposed(times->exchange_begin_ns, times->exchange_begin_ns + exposed_ns);
    dpb_trace(DPB_TRACE_EXPOSED, 0, times->exchange_begin_ns,
              times->exchange_begin_ns + exposed_ns);
    take_series(record);
    if (account.updates_only)
        record->optimizer_ns = exposed_ns;
    record->comm_exposed_ns = exposed_ns - record->optimizer_ns;
    keep(record);
    account.awaits_device = false;
}

/* Time in a pause that was missed is no step's. */
static void look_at_missed(void)
{
    const int64_t missed_ns = dpb_missed_ns();
    account.record.missed_ns = missed_ns - account.missed_ns;
    account.missed_ns = missed_ns;
}

static void end_step(int64_t now)
{
    keep_coding();
    look_at_missed();
    if (account.by_device) {
        end_step_of_device();
        return;
    }
    struct dpb_record *record = &account.record;
    record->step_ns = now - record->begin_ns;
    int64_t exposed_ns = take_series(record);
    record->comm_exposed_ns = exposed_ns - record->optimizer_ns;
    /* The loop's own work after the last mark (statistics, control) counts as backward. */
    record->backward_ns += record->step_ns - exposed_ns - record->data_wait_ns -
                           record->forward_ns - record->delay_ns - record->backward_ns;
    record->comm_bytes = __atomic_exchange_n(&account.bytes, 0, __ATOMIC_ACQ_REL);

    keep(record);
    account.running = false;
}

/* Exchanges of verification before the first step, or of an evaluation, are no part of a step. */
static void forget(void)
{
    pthread_mutex_lock(&series_lock);
    for (int s = 0; s < N_SERIES; s++)
        account.series[s].n = 0;
    pthread_mutex_unlock(&series_lock);
    __atomic_store_n(&account.bytes, 0, __ATOMIC_RELEASE);
}

void dpb_account_end(void)
{
    if (!account.running)
        return;
    account.stopped_ns = dpb_now_ns();
    end_step(account.stopped_ns);
}

void dpb_account_begin(double learning_rate)
{
    int64_t now = dpb_now_ns(), paused_ns = 0;
    if (account.running) {
        end_step(now);
    } else {
        forget();
        paused_ns = account.stopped_ns != 0 ? now - account.stopped_ns : 0;
        look_at_missed();
    }
    memset(&account.record, 0, sizeof account.record);
    memset(&account.coding, 0, sizeof account.coding);
    account.record.begin_ns = now;
    account.parked_ns = dpb_parked_ns();
    account.record.paused_ns = paused_ns;
    account.record.learning_rate = learning_rate;
    account.marked_ns = now;
    account.exposed_ns = account.exposed_before_ns = 0;
    account.next_ready = 0;
    account.running = true;
    dpb_world_note("data", UINT64_MAX, UINT32_MAX);
}

void dpb_account_mark(dpb_part part)
{
    int64_t now = dpb_now_ns();
    int64_t *const parts[DPB_PARTS] = {&account.record.data_wait_ns, &account.record.forward_ns,
                                       &account.record.delay_ns, &account.record.backward_ns};
    /* The part that follows, for the status page. */
    static const char *const next[DPB_PARTS] = {"forward", "backward", "backward", "data"};
    dpb_world_note(next[part], UINT64_MAX, UINT32_MAX);
    *parts[part] += now - account.marked_ns - account.exposed_ns;
    dpb_trace(DPB_TRACE_PART + part, 0, account.marked_ns, now);
    account.marked_ns = now;
    account.exposed_before_ns += account.exposed_ns;
    account.exposed_ns = 0;
}

void dpb_account_ready(uint64_t elements)
{
    struct dpb_journal *journal = account.journal;
    if (!account.running || journal->timed_from == UINT64_MAX || is_cut())
        return;
    uint64_t i = account.next_ready;
    if (i > 0 && journal->ready[i - 1].elements == elements)
        return;
    if (i == journal->n_ready && i < DPB_JOURNAL_READY)
        journal->ready[journal->n_ready++] = (struct dpb_ready){.elements = elements};
    if (i == journal->n_ready || journal->ready[i].elements != elements)
        return;
    journal->ready[i].steps++;
    journal->ready[i].sum_ns += undilated(dpb_now_ns() - account.record.begin_ns -
                                          account.exposed_before_ns - account.exposed_ns);
    account.next_ready++;
}

int64_t dpb_account_enter(void)
{
    account.entered++;
    return dpb_now_ns();
}

dpb_status dpb_account_leave(int64_t entered_ns, dpb_status status)
{
    int64_t now = dpb_now_ns();
    if (--account.entered > 0)
        return status;
    account.exposed_ns += now - entered_ns;
    append_exposed(entered_ns, now);
    if (account.running && !account.by_device)
        dpb_trace(DPB_TRACE_EXPOSED, 0, entered_ns, now);
    return status;
}

void dpb_account_stopped(void)
{
    account.record.has_no_loss = true;
}

void dpb_account_loss(double loss, uint64_t correct)
{
    account.record.loss = loss;
    account.record.correct = correct;
}

void dpb_account_span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns)
{
    pthread_mutex_lock(&series_lock);
    const uint32_t step = account.n_taken;
    switch (phase) {
    case DPB_PHASE_WAIT_PEER:
        append(&account.series[WAIT], begin_ns, end_ns);
        append(&account.series[COMM], begin_ns, end_ns);
        break;
    case DPB_PHASE_TRANSFER:
    case DPB_PHASE_REDUCE:
        append(&account.series[COMM], begin_ns, end_ns);
        break;
    default:
        append(&account.series[UPDATE], begin_ns, end_ns);
        break;
    }
    pthread_mutex_unlock(&series_lock);
    if (dpb_trace_ring)
        dpb_trace_write((struct dpb_trace_span){
            .begin_ns = begin_ns,
            .end_ns = end_ns,
            .number = bucket,
            .kind = DPB_TRACE_PHASE + phase,
            .of = step,
        });
}

void dpb_account_age(uint64_t age)
{
    struct dpb_journal *journal = account.journal;
    if (!account.running || journal->timed_from == UINT64_MAX)
        return;
    if (age == DPB_DROPPED) {
        journal->dropped++;
        return;
    }
    journal->ages[age < DPB_JOURNAL_AGES ? age : DPB_JOURNAL_AGES - 1]++;
    journal->sum_of_ages += age;
    if (age > journal->most_age)
        journal->most_age = age;
}

void dpb_account_coding(const struct dpb_coding *coding)
{
    struct dpb_coding own = *coding;
    own.encode_ns = undilated(coding->encode_ns);
    own.decode_ns = undilated(coding->decode_ns);
    if (account.running)
        dpb_coding_add(&account.coding, &own);
}

void dpb_account_bytes(uint64_t bytes)
{
    __atomic_fetch_add(&account.bytes, bytes, __ATOMIC_RELAXED);
    dpb_wait_sign();
}
