/*
 * test_gather.c - messages around a ring (gather.h), between a member and the test, which plays
 * its two neighbours: several exchanges of a bucket, messages that come before their exchange has
 * begun here, and those that no neighbour may send.
 */
#include <string.h>
#include <sys/socket.h>

#include "tests/unit/wakes.h"

#include "lib/mesh/mesh_tcp.h"
#include "lib/ring/gather.h"
#include "lib/tcp/tcp_frames.h"
#include "plan/experiment.h"

enum { MEMBERS = 3, BUCKETS = 2, CONTENT = 64, SLOT = sizeof(struct dpb_coded_message) + CONTENT };
enum { SLOTS = MEMBERS * DPB_GATHER_BANKS * BUCKETS };

static uint8_t memory[SLOTS][SLOT] __attribute__((aligned(64)));

/* Rank 0. Rank 1 is the next one, rank 2 the one before. */
struct duel {
    struct dpb_strategy strategy;
    struct dpb_doorbell *doorbell;
    struct dpb_gather *gather;
    int next, previous; /* the test's ends */
};

static void duel_begin(struct duel *duel)
{
    struct dpb_mesh_transport *transport;
    int in[2], out[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out), 0);
    *duel = (struct duel){.doorbell = wakes_doorbell(), .next = out[1], .previous = in[1]};
    duel->strategy.host = &dpb_host;
    duel->strategy.args.n_workers = MEMBERS;
    duel->strategy.arenas.n_buckets = BUCKETS;
    const int fds[] = {out[0], in[0]};
    assert_int_equal(dpb_mesh_tcp_create_connected(&dpb_host, 1, fds, &transport), DPB_OK);
    const struct dpb_gather_args args = {
        .strategy = &duel->strategy,
        .slots = {memory, SLOT},
        .transport = transport,
        .members = {.name = "duel", .n_members = MEMBERS, .doorbell = duel->doorbell}};
    assert_int_equal(dpb_gather_create(&args, &duel->gather), DPB_OK);
    dpb_first_error_clear();
}

static void duel_end(struct duel *duel)
{
    dpb_gather_destroy(duel->gather);
    dpb_doorbell_close(duel->doorbell);
    close(duel->next);
    close(duel->previous);
    dpb_first_error_clear();
}

static dpb_status duel_move(struct duel *duel)
{
    dpb_status status = DPB_OK;
    for (bool moved = true; moved && status == DPB_OK;)
        status = dpb_gather_move(duel->gather, INT64_MAX, &moved);
    return status;
}

static struct dpb_mesh_label label_of(uint32_t origin, uint64_t exchange, uint32_t bucket)
{
    return (struct dpb_mesh_label){.bucket = bucket,
                                   .exchange = exchange,
                                   .at_bytes =
                                       dpb_gather_slot(BUCKETS, origin, exchange, bucket) * SLOT +
                                       sizeof(struct dpb_coded_message),
                                   .bytes = CONTENT,
                                   .word = origin};
}

static void say(int fd, const struct dpb_mesh_label *label)
{
    uint8_t frame[DPB_TCP_FRAME_BYTES + CONTENT];
    dpb_mesh_write_header(frame, label);
    memset(frame + DPB_TCP_FRAME_BYTES, (int)(label->word * 16 + label->exchange + 1), CONTENT);
    assert_int_equal(write(fd, frame, sizeof frame), sizeof frame);
}

/* The next message that rank 1 gets is this one. */
static void expect_sent(struct duel *duel, struct dpb_mesh_label label)
{
    uint8_t frame[DPB_TCP_FRAME_BYTES + CONTENT], header[DPB_TCP_FRAME_BYTES];
    assert_int_equal(duel_move(duel), DPB_OK);
    dpb_mesh_write_header(header, &label);
    assert_int_equal(recv(duel->next, frame, sizeof frame, MSG_DONTWAIT), sizeof frame);
    assert_memory_equal(frame, header, sizeof header);
    assert_int_equal(frame[DPB_TCP_FRAME_BYTES], label.word * 16 + label.exchange + 1);
}

static void post(struct duel *duel, uint64_t exchange, uint64_t bucket)
{
    struct dpb_coded_message *own = (void *)memory[dpb_gather_slot(BUCKETS, 0, exchange, bucket)];
    own->bytes = CONTENT;
    memset(own->content, (int)exchange + 1, CONTENT);
    dpb_gather_post(duel->gather, bucket);
}

/* Exchanges of bucket 1, none of bucket 0. At times rank 2 is an exchange ahead. Then its message
 * goes on at once, and is there when rank 0 begins the exchange. */
TEST(test_exchanges)
{
    struct duel duel;
    duel_begin(&duel);
    for (uint64_t s = 0; s < 7; s++) {
        const struct dpb_mesh_label of_next = label_of(1, s, 1), of_previous = label_of(2, s, 1);
        const bool ahead = s % 3 == 1;
        if (ahead) {
            say(duel.previous, &of_previous);
            expect_sent(&duel, of_previous);
        }
        post(&duel, s, 1);
        expect_sent(&duel, label_of(0, s, 1));
        if (!ahead) {
            say(duel.previous, &of_previous);
            expect_sent(&duel, of_previous);
        }
        assert_false(dpb_gather_finished(duel.gather, 1));
        say(duel.previous, &of_next); /* goes no further: rank 1 has made it */
        assert_int_equal(duel_move(&duel), DPB_OK);
        assert_true(dpb_gather_finished(duel.gather, 1));
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
            const struct dpb_coded_message *message =
                (void *)memory[dpb_gather_slot(BUCKETS, rank, s, 1)];
            assert_int_equal(message->bytes, CONTENT);
            assert_int_equal(message->content[CONTENT - 1], rank * 16 + s + 1);
        }
    }
    duel_end(&duel);
}

/* Exchange 1 of bucket 0 is under way, and the message of rank 1 is here. */
TEST(test_refused)
{
    static const struct {
        uint64_t exchange, bytes;
        int64_t more_bytes_at;
        uint32_t kind, origin, bucket;
        bool from_next;
    } bad[] = {{.exchange = 1, .bytes = CONTENT + 1, .origin = 2},
               {.exchange = 1, .bytes = UINT64_MAX, .origin = 2},
               {.exchange = 1, .origin = 2, .more_bytes_at = -64},
               {.exchange = 1, .origin = 2, .more_bytes_at = SLOT},
               {.exchange = 1, .origin = 2, .from_next = true},
               {.exchange = 1, .origin = 2, .kind = 1},
               {.exchange = 1, .origin = 2, .bucket = 1},
               {.exchange = 1, .origin = 2, .bucket = BUCKETS},
               {.exchange = 1, .origin = 1},
               {.exchange = 1, .origin = 0},
               {.exchange = 1, .origin = MEMBERS},
               {.exchange = 0, .origin = 2},
               {.exchange = 3, .origin = 2},
               {.exchange = UINT64_MAX, .origin = 2},
               {.exchange = UINT64_MAX, .origin = 2, .bucket = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct duel duel;
        dpb_status first;
        char words[64];
        duel_begin(&duel);
        for (uint64_t s = 0; s < 2; s++) {
            post(&duel, s, 0);
            for (uint32_t origin = 1; origin < MEMBERS - (s == 1); origin++) {
                const struct dpb_mesh_label label = label_of(origin, s, 0);
                say(duel.previous, &label);
            }
            assert_int_equal(duel_move(&duel), DPB_OK);
            assert_true(dpb_gather_finished(duel.gather, 0) == (s == 0));
        }
        struct dpb_mesh_label label = label_of(bad[i].origin, bad[i].exchange, bad[i].bucket);
        label.kind = bad[i].kind;
        label.at_bytes += (uint64_t)bad[i].more_bytes_at;
        label.bytes = bad[i].bytes > 0 ? bad[i].bytes : CONTENT;
        say(bad[i].from_next ? duel.next : duel.previous, &label);
        assert_int_equal(duel_move(&duel), DPB_FAILED);
        snprintf(words, sizeof words, "rank %d sent the message of rank %u for exchange %llu",
                 bad[i].from_next ? 1 : 2, bad[i].origin, (unsigned long long)bad[i].exchange);
        expect_part(dpb_first_error(&first), words);
        duel_end(&duel);
    }
}

static dpb_status wait_for_first(void *gather)
{
    return dpb_gather_wait(gather, 0);
}

/* The loop's thread has a bucket for the one that waits for the messages of another. */
TEST(test_wake)
{
    struct duel duel;
    duel_begin(&duel);
    post(&duel, 0, 0);
    assert_int_equal(duel_move(&duel), DPB_OK);
    expect_woken(duel.doorbell, wait_for_first, duel.gather);
    duel_end(&duel);
}

int main(void)
{
    return test_main(NULL, NULL);
}
