/*
 * test_feed.c - the order of an epoch, its split over ranks and micro-batches, and the feed: the
 * same batches whatever the number of helpers, waiting, failures, evaluation.
 */
#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "feed/feed.h"
#include "lib/capture.h"
#include "lib/test.h"
#include "world/board.h"

#define MS INT64_C(1000000)

/* ---- a source whose samples say what they are ---------------------------------------------- */

enum { CLASSES = 7 };

struct sample {
    uint64_t index, epoch;
};

struct fake {
    int64_t fetch_ns;   /* how long a fetch sleeps */
    uint64_t bad_index; /* a fetch with this sample fails; UINT64_MAX: none */
    int32_t bad_label;  /* what its label is then instead, if not 0 */
    atomic_int fetches, at_once, most_at_once;
};

static void sleep_ns(int64_t ns)
{
    struct timespec time = {.tv_sec = ns / (1000 * MS), .tv_nsec = ns % (1000 * MS)};
    nanosleep(&time, NULL);
}

static dpb_status fake_fetch(void *handle, dpb_split split, uint64_t epoch, const uint64_t *indices,
                             uint32_t n, void *samples, int32_t *labels)
{
    (void)split;
    struct fake *fake = handle;
    atomic_fetch_add(&fake->fetches, 1);
    int now = atomic_fetch_add(&fake->at_once, 1) + 1, most = atomic_load(&fake->most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&fake->most_at_once, &most, now))
        ;
    if (fake->fetch_ns > 0)
        sleep_ns(fake->fetch_ns);
    atomic_fetch_sub(&fake->at_once, 1);
    for (uint32_t i = 0; i < n; i++) {
        bool bad = indices[i] == fake->bad_index;
        if (bad && fake->bad_label == 0)
            return dpb_fail(DPB_IO, "sample %d is gone", (int)indices[i]);
        ((struct sample *)samples)[i] = (struct sample){indices[i], epoch};
        labels[i] = bad ? fake->bad_label : (int32_t)(indices[i] % CLASSES);
    }
    return DPB_OK;
}

static const struct dpb_data_ops fake_ops = {.fetch = fake_fetch};

static struct dpb_feed_args args_of(struct fake *fake, uint64_t n_samples, uint32_t batch)
{
    return (struct dpb_feed_args){
        .ops = &fake_ops,
        .source = fake,
        .name = "fake",
        .info = {.format = {.shape = {1, 1, sizeof(struct sample)}, .type = DPB_UINT8},
                 .nclass = CLASSES,
                 .n_samples = {n_samples, n_samples}},
        .split = DPB_TRAIN,
        .batch = batch,
        .n_workers = 1,
        .accumulate = 1,
        .shuffle = true,
        .seed = 3,
        .timeout_ns = 20 * 1000 * MS};
}

static struct fake healthy(void)
{
    return (struct fake){.bad_index = UINT64_MAX};
}

/* How far a training with these batches is at the begin of `step`. */
static struct dpb_progress progress_of(const struct dpb_feed_args *args, uint64_t step)
{
    const struct dpb_progress begin = {0};
    struct dpb_shards shards;
    assert_int_equal(dpb_shards_init("fake", args->info.n_samples[args->split], args->batch,
                                     args->n_workers, args->accumulate, &begin, &shards),
                     DPB_OK);
    return dpb_shards_progress(&shards, step);
}

static struct dpb_feed *create(const struct dpb_feed_args *args)
{
    struct dpb_feed *feed = NULL;
    assert_int_equal(dpb_feed_create(args, &feed), DPB_OK);
    return feed;
}

/* The next batch, checked against itself. */
static struct dpb_feed_batch next(struct dpb_feed *feed)
{
    struct dpb_feed_batch batch;
    assert_int_equal(dpb_feed_next(feed, &batch), DPB_OK);
    const struct sample *samples = batch.batch.samples;
    assert_int_equal((uintptr_t)samples % DPB_CACHE_LINE, 0);
    for (uint32_t i = 0; i < batch.valid; i++) {
        assert_int_equal(batch.batch.labels[i], samples[i].index % CLASSES);
        assert_int_equal(samples[i].epoch, batch.place.epoch);
    }
    return batch;
}

static void assert_message(const char *part)
{
    if (!strstr(dpb_first_error(NULL), part))
        fail_msg("'%s' is not in '%s'", part, dpb_first_error(NULL));
}

/* ---- order --------------------------------------------------------------------------------- */

static void assert_bijective(uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct dpb_order order = {.n = n, .seed = seed, .shuffle = true};
    uint8_t *seen = calloc(n, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t sample = dpb_order_at(&order, epoch, i);
        assert_true(sample < n);
        assert_int_equal(seen[sample]++, 0);
    }
    free(seen);
}

TEST(test_order_is_a_permutation)
{
    for (uint64_t n = 1; n <= 300; n++)
        assert_bijective(n, 1, n);
    const uint64_t sizes[] = {1023, 1024, 1025, 60000, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_bijective(sizes[i], UINT64_MAX, UINT32_MAX);
}

TEST(test_order_differs_by_epoch_and_seed)
{
    enum { N = 60000 };
    struct dpb_order order = {.n = N, .seed = 1, .shuffle = true}, other = order, plain = order;
    other.seed = 1 + (UINT64_C(1) << 32);
    plain.shuffle = false;
    int same_epoch = 0, same_seed = 0, in_place = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t sample = dpb_order_at(&order, 0, i);
        same_epoch += sample == dpb_order_at(&order, 1, i);
        same_seed += sample == dpb_order_at(&other, 0, i);
        in_place += sample == i;
        assert_int_equal(dpb_order_at(&plain, 5, i), i);
    }
    /* Each is Poisson with mean 1. */
    assert_true(same_epoch < 10 && same_seed < 10 && in_place < 10);
}

/* An upper bound of chi-square that chance passes in 1 of 10,000 (Wilson and Hilferty). */
static double chi_square_limit(double freedom)
{
    double k = 2 / (9 * freedom);
    return freedom * pow(1 - k + 3.719 * sqrt(k), 3);
}

static double chi_square(const int *count, int n, double expected)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (count[i] - expected) * (count[i] - expected) / expected;
    return sum;
}

/* The number of a permutation of n among the n! (Lehmer code). */
static int number_of(const uint64_t *permutation, int n)
{
    int number = 0;
    for (int i = 0; i < n; i++) {
        int smaller = 0;
        for (int j = i + 1; j < n; j++)
            smaller += permutation[j] < permutation[i];
        number = number * (n - i) + smaller;
    }
    return number;
}

TEST(test_small_permutations_are_equally_frequent)
{
    enum { EACH = 200 };
    int factorial = 1;
    for (int n = 2; n <= 5; n++) {
        factorial *= n;
        int count[120] = {0};
        struct dpb_order order = {.n = (uint64_t)n, .seed = 11, .shuffle = true};
        for (uint64_t epoch = 0; epoch < (uint64_t)factorial * EACH; epoch++) {
            uint64_t permutation[5];
            for (int i = 0; i < n; i++)
                permutation[i] = dpb_order_at(&order, epoch, (uint64_t)i);
            count[number_of(permutation, n)]++;
        }
        double found = chi_square(count, factorial, EACH);
        if (found > chi_square_limit(factorial - 1))
            fail_msg("n = %d: chi-square %g with %d degrees of freedom", n, found, factorial - 1);
    }
}

TEST(test_large_permutations_are_uniform)
{
    enum { N = 60000, CELLS = 20 };
    int at[CELLS * CELLS] = {0}, step[CELLS] = {0};
    struct dpb_order order = {.n = N, .seed = 12, .shuffle = true};
    uint64_t last = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t sample = dpb_order_at(&order, 2, i);
        at[i * CELLS / N * CELLS + sample * CELLS / N]++;
        step[(sample + N - last) % N * CELLS / N]++; /* from neighbour to neighbour */
        last = sample;
    }
    assert_true(chi_square(at, CELLS * CELLS, N / (CELLS * CELLS)) <
                chi_square_limit(CELLS * CELLS - 1));
    assert_true(chi_square(step, CELLS, N / CELLS) < chi_square_limit(CELLS - 1));
}

/* ---- split --------------------------------------------------------------------------------- */

TEST(test_workers_together_are_one_that_accumulates)
{
    enum { N = 100, BATCH = 3, STEPS = 40 };
    struct fake fake = healthy();
    for (uint32_t workers = 1; workers <= 5; workers++) {
        for (uint32_t accumulate = 1; accumulate <= 3; accumulate++) {
            struct dpb_feed_args args = args_of(&fake, N, BATCH);
            args.accumulate = workers * accumulate;
            struct dpb_feed *one = create(&args), *ranks[5];
            args.n_workers = workers;
            args.accumulate = accumulate;
            for (args.rank = 0; args.rank < workers; args.rank++)
                ranks[args.rank] = create(&args);
            for (uint64_t step = 0; step < STEPS; step++) {
                for (uint32_t m = 0; m < workers * accumulate; m++) {
                    struct dpb_feed_batch a = next(one), b = next(ranks[m / accumulate]);
                    assert_memory_equal(a.batch.samples, b.batch.samples,
                                        BATCH * sizeof(struct sample));
                    assert_int_equal(b.place.step, step);
                    assert_int_equal(b.place.micro, m % accumulate);
                    assert_int_equal(b.place.first_sample, m * BATCH);
                    assert_int_equal(b.place.position, a.place.position);
                }
            }
            for (uint32_t rank = 0; rank < workers; rank++)
                dpb_feed_destroy(ranks[rank]);
            dpb_feed_destroy(one);
        }
    }
}

TEST(test_an_epoch_takes_each_sample_once_and_drops_the_rest)
{
    enum { N = 103, BATCH = 4, ACCUMULATE = 2, WORKERS = 3 };
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, N, BATCH);
    args.accumulate = ACCUMULATE;
    args.n_workers = WORKERS;
    int seen[3][N] = {{0}};
    for (args.rank = 0; args.rank < WORKERS; args.rank++) {
        struct dpb_feed *feed = create(&args);
        const struct dpb_shards *shards = dpb_feed_shards(feed);
        assert_int_equal(shards->global_batch, 24);
        assert_int_equal(shards->steps_per_epoch, 4);
        assert_int_equal(shards->dropped, 7);
        for (uint64_t step = 0; step < 12; step++) {
            for (uint32_t micro = 0; micro < ACCUMULATE; micro++) {
                struct dpb_feed_batch batch = next(feed);
                assert_int_equal(batch.place.step, step);
                assert_int_equal(batch.place.epoch, step / 4);
                assert_int_equal(batch.valid, BATCH);
                const struct sample *samples = batch.batch.samples;
                for (uint32_t i = 0; i < BATCH; i++)
                    seen[batch.place.epoch][samples[i].index]++;
            }
        }
        dpb_feed_destroy(feed);
    }
    for (int epoch = 0; epoch < 3; epoch++) {
        int taken = 0;
        for (int i = 0; i < N; i++) {
            assert_in_range(seen[epoch][i], 0, 1);
            taken += seen[epoch][i];
        }
        assert_int_equal(taken, 96);
    }
}

TEST(test_sharded_ranks_read_disjoint_samples)
{
    enum { N = 103, BATCH = 4, RANKS = 3, STEPS = 8 /* 34 / 4 */ };
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, N, BATCH);
    args.n_workers = RANKS;
    args.sharded = args.shuffle = true;
    uint64_t order[RANKS][2][STEPS * BATCH]; /* in the rank's own numbers */
    for (args.rank = 0; args.rank < RANKS; args.rank++) {
        int seen[2][N] = {{0}};
        struct dpb_feed *feed = create(&args);
        for (uint64_t step = 0; step < 2 * STEPS; step++) {
            struct dpb_feed_batch batch = next(feed);
            assert_int_equal(batch.place.epoch, step / STEPS);
            const struct sample *samples = batch.batch.samples;
            for (uint32_t i = 0; i < BATCH; i++) {
                assert_int_equal(samples[i].index % RANKS, args.rank);
                assert_int_equal(seen[batch.place.epoch][samples[i].index]++, 0);
                order[args.rank][step / STEPS][step % STEPS * BATCH + i] = samples[i].index / RANKS;
            }
        }
        assert_memory_not_equal(order[args.rank][0], order[args.rank][1], sizeof order[0][0]);
        /* Neighbours in the set do not come side by side on all ranks. */
        if (args.rank > 0)
            assert_memory_not_equal(order[0][0], order[args.rank][0], sizeof order[0][0]);
        dpb_feed_destroy(feed);
    }
}

TEST(test_a_global_batch_larger_than_the_data_is_refused)
{
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, 95, 4);
    args.accumulate = 2;
    args.n_workers = 12;
    struct dpb_feed *feed = NULL;
    dpb_first_error_clear();
    assert_int_equal(dpb_feed_create(&args, &feed), DPB_USAGE);
    assert_null(feed);
    assert_message("'fake' has 95 training samples");
    assert_message("batch 4 x accumulate 2 x 12 workers");
    args.info.n_samples[DPB_TRAIN] = 96;
    dpb_feed_destroy(create(&args));
}

/* ---- going on ------------------------------------------------------------------------------ */

/* The positions of `steps` steps that begin at `start`. */
static struct dpb_progress positions(struct dpb_feed_args *args, struct dpb_progress start,
                                     uint64_t steps, uint64_t *at)
{
    args->start = start;
    struct dpb_feed *feed = create(args);
    struct dpb_progress end = dpb_feed_progress(feed, start.step + steps);
    for (uint64_t i = 0; i < steps; i++) {
        struct dpb_feed_batch batch = next(feed);
        assert_int_equal(batch.place.step, start.step + i);
        at[i] = batch.place.epoch * 1000 + batch.place.position;
    }
    dpb_feed_destroy(feed);
    return end;
}

TEST(test_a_training_goes_on_where_it_stopped)
{
    enum { N = 103, BATCH = 4, STEPS = 80 }; /* 25 steps an epoch, 3 samples left over */
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, N, BATCH);
    uint64_t whole[STEPS], parts[STEPS];
    positions(&args, (struct dpb_progress){0}, STEPS, whole);
    for (uint64_t stop = 0; stop <= 60; stop += 5) { /* at the ends of epochs, too */
        struct dpb_progress half = positions(&args, (struct dpb_progress){0}, stop, parts);
        assert_int_equal(half.step, stop);
        assert_int_equal(half.samples, stop * BATCH);
        assert_int_equal(half.epoch, stop / 25);
        assert_int_equal(half.position, stop % 25 * BATCH);
        positions(&args, half, STEPS - stop, parts + stop);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

/* With another global batch no sample of the epoch comes twice or is left out, but at its end. */
TEST(test_a_training_goes_on_with_another_batch)
{
    enum { N = 103 };
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, N, 4);
    uint64_t at[64];
    struct dpb_progress half = positions(&args, (struct dpb_progress){0}, 7, at);
    args.batch = 10;
    struct dpb_progress end = positions(&args, half, 8, at);
    assert_int_equal(at[0], 28);
    assert_int_equal(at[6], 88); /* 98 .. 102 do not fill a batch */
    assert_int_equal(at[7], 1000);
    assert_true(end.step == 15 && end.samples == 28 + 80);
    assert_true(end.epoch == 1 && end.position == 10);

    /* So few left of the epoch that the next one begins. */
    args.batch = 80;
    end = positions(&args, half, 1, at);
    assert_int_equal(at[0], 1000);
    assert_true(end.epoch == 2 && end.position == 0);

    args.n_workers = 3;
    args.batch = 1;
    args.sharded = true;
    half.position = 30;
    end = positions(&args, half, 2, at);
    assert_int_equal(at[0], 10); /* of the rank's own 34 */
    assert_true(end.position == 36 && end.samples == half.samples + 6);
}

TEST(test_how_many_steps_are_left_of_the_epochs)
{
    struct dpb_shards shards;
    struct dpb_progress start = {.step = 1000, .epoch = 2, .position = 28};
    assert_int_equal(dpb_shards_init("fake", 103, 10, 1, 1, &start, &shards), DPB_OK);
    assert_int_equal(dpb_shards_epochs_end(&shards, 2), 1000);
    assert_int_equal(dpb_shards_epochs_end(&shards, 3), 1007);
    assert_int_equal(dpb_shards_epochs_end(&shards, 5), 1027);
}

/* ---- helpers ------------------------------------------------------------------------------- */

TEST(test_the_same_batches_with_any_number_of_helpers)
{
    enum { BATCH = 8, BATCHES = 100 };
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, 203, BATCH);
    static struct sample expected[BATCHES][BATCH];
    for (args.threads = 0; args.threads <= 4; args.threads++) {
        struct dpb_feed *feed = create(&args);
        for (int i = 0; i < BATCHES; i++) {
            struct dpb_feed_batch batch = next(feed);
            if (args.threads == 0)
                memcpy(expected[i], batch.batch.samples, sizeof expected[i]);
            else if (i % 7 == 0)
                sleep_ns(MS / 5); /* what was handed out stays as it was */
            assert_memory_equal(expected[i], batch.batch.samples, sizeof expected[i]);
            assert_int_equal(batch.place.step, i);
        }
        dpb_feed_destroy(feed);

        args.start = progress_of(&args, 37);
        feed = create(&args);
        assert_memory_equal(expected[37], next(feed).batch.samples, sizeof expected[37]);
        assert_int_equal(next(feed).place.step, 38);
        dpb_feed_destroy(feed);
        args.start = (struct dpb_progress){0};
    }
}

static int64_t cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

/* Time spent in `batches` calls of next, the loop computing for compute_ns before each. */
static int64_t waited_ns(struct dpb_feed *feed, int batches, int64_t compute_ns)
{
    int64_t waited = 0;
    for (int i = 0; i < batches; i++) {
        sleep_ns(compute_ns);
        int64_t begin = dpb_now_ns();
        next(feed);
        waited += dpb_now_ns() - begin;
    }
    return waited;
}

TEST(test_a_slow_source_is_waited_for_asleep)
{
    struct fake fake = healthy();
    fake.fetch_ns = 30 * MS;
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.threads = 1;
    int64_t begin = dpb_now_ns(), cpu_begin = cpu_ns();
    struct dpb_feed *feed = create(&args);
    waited_ns(feed, 10, 0);
    int64_t took = dpb_now_ns() - begin;
    assert_true(took >= 300 * MS); /* ten fetches, one after the other */
    assert_true(cpu_ns() - cpu_begin < took / 4);
    assert_int_equal(atomic_load(&fake.most_at_once), 1);
    dpb_feed_destroy(feed);

    args.threads = 4; /* four fetches at once: on a busy machine not from the first on */
    feed = create(&args);
    for (int i = 0; i < 300 && atomic_load(&fake.most_at_once) < 4; i++)
        next(feed);
    assert_int_equal(atomic_load(&fake.most_at_once), 4);
    dpb_feed_destroy(feed);
}

TEST(test_a_fast_source_is_not_waited_for)
{
    struct fake fake = healthy();
    fake.fetch_ns = 10 * MS;
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.threads = 1;
    int64_t least = INT64_MAX; /* of some: a busy machine wakes helpers late */
    for (int i = 0; i < 40 && least >= 50 * MS; i++) {
        struct dpb_feed *feed = create(&args);
        int64_t waited = waited_ns(feed, 10, 30 * MS);
        least = waited < least ? waited : least;
        dpb_feed_destroy(feed);
    }
    assert_true(least < 50 * MS); /* 100 ms of fetches */

    args.threads = 0;
    struct dpb_feed *feed = create(&args);
    assert_true(waited_ns(feed, 10, 0) >= 100 * MS);
    dpb_feed_destroy(feed);
}

/* Until so many fetches have begun; and a while, in which there are no more. */
static void expect_fetches(struct fake *fake, int n)
{
    for (int64_t until = dpb_now_ns() + 20000 * MS;
         atomic_load(&fake->fetches) < n && dpb_now_ns() < until;)
        sleep_ns(MS);
    sleep_ns(50 * MS);
    assert_int_equal(atomic_load(&fake->fetches), n);
}

TEST(test_the_ring_is_bounded)
{
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.threads = 3;
    struct dpb_feed *feed = create(&args);
    expect_fetches(&fake, 5);
    next(feed); /* held: its slot is not free */
    expect_fetches(&fake, 5);
    next(feed);
    expect_fetches(&fake, 6);
    dpb_feed_destroy(feed);
}

static int threads_named(const char *prefix)
{
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *stream = fopen(path, "r");
        if (stream && fgets(name, sizeof name, stream))
            found += strncmp(name, prefix, strlen(prefix)) == 0;
        if (stream)
            fclose(stream);
    }
    closedir(tasks);
    return found;
}

TEST(test_destroy_joins_helpers_in_a_fetch)
{
    struct fake fake = healthy();
    fake.fetch_ns = 2000 * MS;
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.threads = 2;
    struct dpb_feed *feed = create(&args);
    expect_fetches(&fake, 2);
    assert_int_equal(threads_named("dpb-feed0"), 1);
    assert_int_equal(threads_named("dpb-feed"), 2);
    dpb_feed_destroy(feed);
    /* A thread that was joined may stand in /proc for a moment more. */
    for (int64_t until = dpb_now_ns() + 2000 * MS;
         threads_named("dpb-feed") > 0 && dpb_now_ns() < until;)
        usleep(1000);
    assert_int_equal(threads_named("dpb-feed"), 0);
    assert_int_equal(atomic_load(&fake.fetches), 2); /* there is room for 5 */
    dpb_feed_destroy(NULL);
}

/* ---- failures ------------------------------------------------------------------------------ */

TEST(test_a_failing_fetch_comes_at_its_batch)
{
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.shuffle = false;
    fake.bad_index = 5 * 4 + 2;
    for (args.threads = 0; args.threads <= 3; args.threads++) {
        dpb_first_error_clear();
        struct dpb_feed *feed = create(&args);
        struct dpb_feed_batch batch;
        for (int i = 0; i < 5; i++)
            next(feed);
        assert_int_equal(dpb_feed_next(feed, &batch), DPB_IO);
        assert_message("sample 22 is gone");
        assert_int_equal(dpb_feed_next(feed, &batch), DPB_IO);
        dpb_feed_destroy(feed);
    }
}

TEST(test_a_label_out_of_range_is_refused)
{
    const int32_t labels[] = {-1, CLASSES};
    for (int i = 0; i < 2; i++) {
        struct fake fake = {.bad_index = 3, .bad_label = labels[i]};
        struct dpb_feed_args args = args_of(&fake, 1000, 4);
        args.shuffle = false;
        dpb_first_error_clear();
        struct dpb_feed *feed = create(&args);
        struct dpb_feed_batch batch;
        assert_int_equal(dpb_feed_next(feed, &batch), DPB_DATA);
        assert_message("sample 3 has label");
        assert_message("classes are 0 to 6");
        dpb_feed_destroy(feed);
    }
}

/* ---- ids of tokens ------------------------------------------------------------------------- */

enum { LENGTH = 3 };

/* Sample i: ids i, i + 1, i + 2, and labels that are one more, all modulo the classes. `wrong`: an
 * id and a label that are others. */
struct wrong {
    uint64_t sample;
    int32_t position, id, label;
};

static void make_ids(const struct wrong *wrong, uint64_t index, int32_t *ids, int32_t *labels)
{
    for (int32_t k = 0; k < LENGTH; k++) {
        ids[k] = (int32_t)((index + (uint64_t)k) % CLASSES);
        labels[k] = (ids[k] + 1) % CLASSES;
    }
    if (wrong->sample == index) {
        ids[wrong->position] = wrong->id;
        labels[wrong->position] = wrong->label;
    }
}

static dpb_status fetch_ids(void *context, dpb_split split, uint64_t epoch, const uint64_t *indices,
                            uint32_t n, void *samples, int32_t *labels)
{
    (void)split;
    (void)epoch;
    for (uint32_t i = 0; i < n; i++)
        make_ids(context, indices[i], (int32_t *)samples + i * LENGTH, labels + i * LENGTH);
    return DPB_OK;
}

static const struct dpb_data_ops ids_ops = {.fetch = fetch_ids};

static struct dpb_feed_args args_of_ids(struct wrong *wrong, uint64_t n_samples, uint32_t batch)
{
    struct dpb_feed_args args = args_of(NULL, n_samples, batch);
    args.ops = &ids_ops;
    args.source = wrong;
    args.info.format = (struct dpb_sample_format){.shape = {1, 1, LENGTH}, .type = DPB_INT32};
    args.shuffle = false;
    return args;
}

/* Each of them beside the last good one, at the first and at the last position of a sample. */
TEST(test_ids_and_their_labels_out_of_range_are_refused)
{
    static const struct {
        struct wrong wrong;
        const char *message; /* NULL: good */
    } rows[] = {
        {{3, 0, -1, 0}, "sample 3 has id -1"},
        {{3, LENGTH - 1, CLASSES, 0}, "sample 3 has id 7"},
        {{2, LENGTH - 1, CLASSES - 1, CLASSES - 1}, NULL},
        {{2, LENGTH - 1, 0, CLASSES}, "sample 2 has label 7"},
        {{1, 1, 0, INT32_MIN}, "sample 1 has label -2147483648"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wrong wrong = rows[i].wrong;
        struct dpb_feed_args args = args_of_ids(&wrong, 1000, 4);
        dpb_first_error_clear();
        struct dpb_feed *feed = create(&args);
        struct dpb_feed_batch batch;
        assert_int_equal(dpb_feed_next(feed, &batch), rows[i].message ? DPB_DATA : DPB_OK);
        if (rows[i].message) {
            assert_message(rows[i].message);
            assert_message("classes are 0 to 6");
        }
        dpb_feed_destroy(feed);
    }
}

/* A slot has been used before; nothing of that is left where the last batch is not full. */
TEST(test_a_batch_of_ids_that_is_not_full_has_class_0)
{
    struct wrong none = {.sample = UINT64_MAX};
    struct dpb_feed_args args = args_of_ids(&none, 6, 4);
    struct dpb_feed *feed = NULL;
    assert_int_equal(dpb_feed_eval_create(&args, &feed), DPB_OK);
    dpb_feed_eval_begin(feed, 0, 1);
    for (uint32_t begin = 0; begin < 6; begin += 4) {
        struct dpb_feed_batch batch;
        assert_int_equal(dpb_feed_next(feed, &batch), DPB_OK);
        assert_int_equal(batch.valid, begin == 0 ? 4 : 2);
        const int32_t *found = batch.batch.samples;
        for (uint32_t i = 0; i < 4; i++) {
            int32_t ids[LENGTH] = {0}, labels[LENGTH] = {0};
            if (i < batch.valid)
                make_ids(&none, begin + i, ids, labels);
            assert_memory_equal(found + i * LENGTH, ids, sizeof ids);
            assert_memory_equal(batch.batch.labels + i * LENGTH, labels, sizeof labels);
        }
    }
    dpb_feed_destroy(feed);
}

/* Batches are numbers then; each position has its label, and the pool's ids are checked. */
TEST(test_a_pool_of_ids)
{
    enum { POOL = 5 };
    int32_t ids[POOL * LENGTH], labels[POOL * LENGTH];
    struct wrong none = {.sample = UINT64_MAX};
    struct dpb_feed_args args = args_of_ids(&none, 20, 4);
    for (uint64_t i = 0; i < POOL; i++)
        make_ids(&none, i, ids + i * LENGTH, labels + i * LENGTH);
    args.pool = (struct dpb_sample_pool){ids, labels, POOL};
    struct dpb_feed *feed = create(&args);
    struct dpb_feed_batch batch;
    for (uint32_t step = 0; step < 5; step++) {
        assert_int_equal(dpb_feed_next(feed, &batch), DPB_OK);
        assert_null(batch.batch.samples);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t number = (step * 4 + i) % POOL;
            assert_int_equal(batch.batch.numbers[i], number);
            assert_memory_equal(batch.batch.labels + i * LENGTH, labels + number * LENGTH,
                                LENGTH * sizeof *labels);
        }
    }
    dpb_feed_destroy(feed);
    ids[POOL * LENGTH - 1] = CLASSES;
    feed = create(&args);
    dpb_first_error_clear();
    assert_int_equal(dpb_feed_next(feed, &batch), DPB_OK);
    assert_int_equal(dpb_feed_next(feed, &batch), DPB_DATA);
    assert_message("sample 4 has id 7");
    dpb_feed_destroy(feed);
}

TEST(test_a_deadline_says_what_was_waited_for)
{
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.accumulate = 2;
    args.threads = 1;
    args.timeout_ns = 60 * MS;
    args.start = progress_of(&args, 251);
    fake.fetch_ns = 600 * MS;
    struct dpb_feed *feed = create(&args);
    struct dpb_feed_batch batch;
    dpb_first_error_clear();
    int64_t begin = dpb_now_ns();
    assert_int_equal(dpb_feed_next(feed, &batch), DPB_TIMEOUT);
    assert_true(dpb_now_ns() - begin >= 60 * MS && dpb_now_ns() - begin < fake.fetch_ns);
    assert_message("step 251, micro-batch 0, epoch 2: the batch from position 8 of data 'fake'");
    assert_message("0.06 s from 1 threads");
    dpb_feed_destroy(feed);
}

TEST(test_the_end_of_the_job_ends_a_wait)
{
    struct fake fake = healthy();
    fake.fetch_ns = 400 * MS;
    struct dpb_feed_args args = args_of(&fake, 1000, 4);
    args.threads = 1;
    assert_int_equal(dpb_board_create(1, 4096, &args.board), DPB_OK);
    struct dpb_feed *feed = create(&args);
    struct dpb_feed_batch batch;
    dpb_board_end_job(args.board);
    dpb_first_error_clear();
    assert_int_equal(dpb_feed_next(feed, &batch), DPB_PEER);
    assert_message("job ended");
    dpb_feed_destroy(feed);
    dpb_board_destroy(args.board);
}

/* ---- evaluation ---------------------------------------------------------------------------- */

/* One pass of a rank: raises seen[] of each sample that counts. Returns the number of batches. */
static int evaluate(struct dpb_feed *feed, uint32_t rank, uint32_t workers, uint32_t batch_size,
                    int *seen)
{
    int batches = 0;
    uint64_t position = 0;
    dpb_feed_eval_begin(feed, rank, workers);
    for (;;) {
        struct dpb_feed_batch batch = next(feed);
        if (batch.valid == 0)
            break;
        const struct sample *samples = batch.batch.samples;
        assert_int_equal(batch.batch.n, batch_size);
        if (batches > 0)
            assert_int_equal(batch.place.position, position);
        for (uint32_t i = 0; i < batch.valid; i++) {
            assert_int_equal(samples[i].index, batch.place.position + i);
            seen[samples[i].index]++;
        }
        for (uint32_t i = 0; i < batch_size; i++)
            assert_in_range(batch.batch.labels[i], 0, CLASSES - 1);
        position = batch.place.position + batch.valid;
        batches++;
    }
    return batches;
}

TEST(test_evaluation_takes_each_sample_once)
{
    const uint64_t sizes[] = {1, 2, 4, 7, 64, 103};
    struct fake fake = healthy();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t workers = 1; workers <= 5; workers++) {
            int seen[103] = {0};
            for (uint32_t rank = 0; rank < workers; rank++) {
                struct dpb_feed_args args = args_of(&fake, 0, 8);
                args.info.n_samples[DPB_TEST] = sizes[s];
                args.split = DPB_TEST;
                args.threads = rank;
                struct dpb_feed *feed = NULL;
                assert_int_equal(dpb_feed_eval_create(&args, &feed), DPB_OK);
                assert_int_equal(next(feed).valid, 0); /* before the first pass */
                uint64_t share = sizes[s] / workers + (rank < sizes[s] % workers);
                assert_int_equal(evaluate(feed, rank, workers, 8, seen), (share + 7) / 8);
                assert_int_equal(evaluate(feed, rank, workers, 8, seen), (share + 7) / 8);
                dpb_feed_destroy(feed);
            }
            for (uint64_t i = 0; i < sizes[s]; i++)
                assert_int_equal(seen[i], 2);
        }
    }
}

TEST(test_evaluation_reads_only_when_asked)
{
    struct fake fake = healthy();
    struct dpb_feed_args args = args_of(&fake, 20, 8);
    args.threads = 2;
    struct dpb_feed *feed = NULL;
    assert_int_equal(dpb_feed_eval_create(&args, &feed), DPB_OK);
    sleep_ns(20 * MS);
    assert_int_equal(atomic_load(&fake.fetches), 0);
    int seen[20] = {0};
    assert_int_equal(evaluate(feed, 0, 1, 8, seen), 3);
    sleep_ns(20 * MS);
    assert_int_equal(atomic_load(&fake.fetches), 3);
    dpb_feed_destroy(feed);

    args.split = DPB_TEST;
    args.info.n_samples[DPB_TEST] = 0;
    dpb_first_error_clear();
    feed = NULL;
    assert_int_equal(dpb_feed_eval_create(&args, &feed), DPB_USAGE);
    assert_null(feed);
    assert_message("'fake' has no test samples");
}

TEST_MAIN(silence, NULL)
