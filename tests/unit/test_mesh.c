/*
 * test_mesh.c - messages between any two ranks (mesh.h): all of a job's ranks send to each
 * other, over several connections and in parts; a peer that sends what it should not, closes, or
 * leaves; and the doorbell by which a rank that waits for sockets hears of its machine's other
 * ranks.
 */
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/unit/trial.h"

#include "lib/mesh/mesh.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/signals/signals.h"
#include "lib/tcp/tcp_frames.h"
#include "plan/experiment.h"
#include "world/store.h"

enum { RANKS = 5, STREAMS = 3, ROUNDS = 40, PLACE = 20000, PLACES = 6, KINDS = 2 };

static const struct dpb_host *host = &dpb_host;
static const char *const kinds[DPB_MESH_KINDS] = {"questions", "answers"};

/* ---- everybody to everybody ---------------------------------------------------------------- */

/* What rank `from` sends as its n-th message of a kind: sizes around those at which parts
 * change. */
static uint64_t size_of(uint32_t kind, uint64_t n)
{
    static const uint64_t sizes[] = {0, 1, 63, 64, 65, 128, 191, 192, 193, 4096, PLACE - 1, PLACE};
    return sizes[(n * 5 + kind) % (sizeof sizes / sizeof sizes[0])];
}

static uint8_t byte_of(uint32_t from, uint32_t kind, uint64_t n, uint64_t i)
{
    return (uint8_t)(from * 31 + kind * 57 + n * 7 + i * 3 + i / 256);
}

static struct dpb_mesh_label label_of(uint32_t kind, uint64_t n)
{
    return (struct dpb_mesh_label){.kind = kind,
                                   .bucket = (uint32_t)(n % PLACES),
                                   .exchange = n / PLACES,
                                   .at_bytes = n % PLACES * PLACE,
                                   .bytes = size_of(kind, n),
                                   .word = n * n};
}

struct talk {
    struct dpb_mesh *mesh;
    struct dpb_mesh_peer peers[RANKS];
    uint8_t landings[RANKS][KINDS][PLACES * PLACE];
    uint32_t n, n_wrong;
};

static bool expects(void *talk, uint32_t link, uint32_t kind, uint64_t n,
                    struct dpb_mesh_label *label)
{
    (void)talk, (void)link;
    *label = label_of(kind, n);
    label->or_less = kind == 1; /* more are refused all the same */
    return kind < KINDS;
}

static void arrived(void *talk_, uint32_t link, const struct dpb_mesh_label *label)
{
    struct talk *talk = talk_;
    uint64_t n = label->exchange * PLACES + label->bucket;
    const uint8_t *bytes = talk->landings[link][label->kind] + label->at_bytes;
    for (uint64_t i = 0; i < label->bytes; i++)
        talk->n_wrong += bytes[i] != byte_of(talk->peers[link].rank, label->kind, n, i);
    talk->n_wrong +=
        label->word != n * n || dpb_mesh_arrived(talk->mesh, link, label->kind) != n + 1;
}

static struct dpb_mesh_args args_of(struct talk *talk, uint32_t rank,
                                    struct dpb_mesh_transport *transport)
{
    return (struct dpb_mesh_args){.host = host,
                                  .transport = transport,
                                  .name = "talk",
                                  .what = "the test",
                                  .kinds = kinds,
                                  .rank = rank,
                                  .keeper = 0,
                                  .peers = talk->peers,
                                  .n_peers = talk->n,
                                  .sink = {.owner = talk, .expects = expects, .arrived = arrived}};
}

static void add_peer(struct talk *talk, uint32_t rank)
{
    struct dpb_mesh_peer *peer = &talk->peers[talk->n];
    peer->rank = rank;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        peer->landings[kind] =
            (struct dpb_mesh_landing){talk->landings[talk->n][kind], sizeof talk->landings[0][0]};
    talk->n++;
}

/* Who has sent its n-th message of a kind has got the first n - 3: none is written over while it
 * comes. */
static bool may_send(const struct talk *talk, uint32_t link, uint64_t n, uint32_t kind)
{
    return n < ROUNDS && n < dpb_mesh_arrived(talk->mesh, link, kind) + 3 &&
           dpb_mesh_room(talk->mesh, link) > 0;
}

static dpb_status converse(struct talk *talk)
{
    static uint8_t outgoing[KINDS][ROUNDS][PLACE];
    uint64_t sent[RANKS][KINDS] = {{0}};
    const struct dpb_wait what = {.bucket = UINT64_MAX, .peer = 0, .purpose = "messages"};
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint64_t n = 0; n < ROUNDS; n++)
            for (uint64_t i = 0; i < size_of(kind, n); i++)
                outgoing[kind][n][i] = byte_of(dpb_world.rank, kind, n, i);
    for (bool through = false; !through;) {
        bool moved = false;
        through = true;
        for (uint32_t i = 0; i < talk->n * KINDS; i++) {
            uint32_t link = i / KINDS, kind = i % KINDS;
            uint64_t *n = &sent[link][kind];
            for (; may_send(talk, link, *n, kind); (*n)++) {
                struct dpb_mesh_label label = label_of(kind, *n);
                dpb_mesh_send(talk->mesh, link, &label, outgoing[kind][*n]);
            }
            through = through && *n == ROUNDS && dpb_mesh_idle(talk->mesh, link) &&
                      dpb_mesh_arrived(talk->mesh, link, kind) == ROUNDS;
        }
        DPB_TRY(dpb_mesh_move(talk->mesh, INT64_MAX, &moved));
        if (!moved && !through)
            DPB_TRY(dpb_mesh_wait(talk->mesh, &what));
    }
    return DPB_OK;
}

/* Each link's other end leaves when it is through: that is no failure, and it is noticed. */
static dpb_status meets(struct trial_scratch *scratch)
{
    static struct talk talk;
    const struct dpb_tcp_options options = {.streams = STREAMS, .interface = "127.0.0.1"};
    int before = trial_count_entries("/proc/self/fd", "");
    (void)scratch;
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        if (rank != dpb_world.rank)
            add_peer(&talk, rank);
    struct dpb_mesh_transport *transport;
    DPB_TRY(dpb_mesh_tcp_create(host, &options, &transport));
    const struct dpb_mesh_args args = args_of(&talk, dpb_world.rank, transport);
    DPB_TRY(dpb_mesh_open(&args, &talk.mesh));
    DPB_TRY(converse(&talk));
    RANK_CHECK(talk.n_wrong == 0);
    DPB_TRY(dpb_store_barrier("over", 0));
    if (dpb_world.rank != 0)
        dpb_mesh_close(talk.mesh, true);
    DPB_TRY(dpb_store_barrier("closed", 0));
    for (uint32_t link = 0; dpb_world.rank == 0 && link < talk.n; link++) {
        bool moved = false;
        DPB_TRY(dpb_mesh_move(talk.mesh, INT64_MAX, &moved));
        RANK_CHECK(dpb_mesh_left(talk.mesh, link));
    }
    if (dpb_world.rank == 0)
        dpb_mesh_close(talk.mesh, true);
    RANK_CHECK(trial_count_entries("/proc/self/fd", "") == before);
    return DPB_OK;
}

/* ---- the doorbell -------------------------------------------------------------------------- */

enum { RINGS = 20000 };

/* Two ranks take turns, each waiting for the other: a ring that is lost would end it by its
 * deadline. */
static dpb_status takes_turns(struct trial_scratch *scratch)
{
    struct dpb_shared all;
    const struct dpb_offer own = {.name = "bell", .bytes = dpb_signals_bytes(0)};
    DPB_TRY(dpb_world_share("bells", &own, 1, &all));
    struct dpb_signal_page *pages[2] = {all.of[0].memory, all.of[1].memory};
    static const uint32_t machines[2];
    const struct dpb_comm_args args = {.n_workers = 2, .machines = machines};
    const struct dpb_rank_signals signals = {.host = host, .rank = dpb_world.rank, .pages = pages};
    struct dpb_doorbell *doorbell;
    const struct dpb_wait what = {.bucket = UINT64_MAX, .peer = 0, .purpose = "the other's turn"};
    uint64_t *turn = &scratch->numbers[0];
    DPB_TRY(dpb_signals_open_doorbell(&signals, &args, "turns", &doorbell));
    for (uint64_t mine = dpb_world.rank; mine < RINGS; mine += 2) {
        while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine) {
            struct pollfd bell = {.fd = dpb_doorbell_fd(doorbell), .events = POLLIN};
            dpb_status status = DPB_OK;
            if (dpb_doorbell_arm(doorbell))
                status = host->poll(&bell, 1, &what, NULL);
            dpb_doorbell_disarm(doorbell, bell.revents != 0);
            DPB_TRY(status);
        }
        __atomic_store_n(turn, mine + 1, __ATOMIC_RELEASE);
        dpb_doorbell_ring(doorbell);
    }
    DPB_TRY(dpb_store_barrier("over", 0)); /* before a socket that is rung at goes */
    dpb_doorbell_close(doorbell);
    dpb_shared_destroy(&all);
    return DPB_OK;
}

/* What strangers say costs a look, and no more: afterwards there is silence. */
static dpb_status strangers(struct trial_scratch *scratch)
{
    static struct dpb_signal_page page;
    struct dpb_signal_page *pages[] = {&page};
    const struct dpb_comm_args args = {.n_workers = 1, .comm_cores = 1};
    const struct dpb_rank_signals signals = {.host = host, .pages = pages};
    struct dpb_doorbell *doorbell;
    struct sockaddr_un address;
    socklen_t bytes = sizeof address;
    (void)scratch;
    DPB_TRY(dpb_signals_open_doorbell(&signals, &args, "strangers", &doorbell));
    int fd = dpb_doorbell_fd(doorbell), stranger = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    RANK_CHECK(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    RANK_CHECK(sendto(stranger, "hello there", 11, 0, (struct sockaddr *)&address, bytes) == 11);
    for (int turn = 0; turn < 2; turn++) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        RANK_CHECK(dpb_doorbell_arm(doorbell));
        RANK_CHECK(poll(&look, 1, 0) == (turn == 0 ? 1 : 0));
        dpb_doorbell_disarm(doorbell, turn == 0);
    }
    close(stranger);
    dpb_doorbell_close(doorbell);
    return DPB_OK;
}

static const struct trial_case cases[] = {
    {"meets", meets}, {"takes_turns", takes_turns}, {"strangers", strangers}, {0}};

/* ---- tests of jobs ------------------------------------------------------------------------- */

TEST(test_meets)
{
    trial_passes("meets", 2, 0);
    trial_passes("meets", RANKS, 0);
}

TEST(test_doorbell)
{
    trial_passes("takes_turns", 2, 0);
    trial_passes("strangers", 1, 0);
}

/* ---- a peer that the test plays ------------------------------------------------------------ */

struct duel {
    struct talk talk;
    int peer; /* the test's end */
    bool survives;
};

static void duel_connect(struct duel *duel)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    duel->peer = fds[1];
    struct dpb_mesh_transport *transport;
    assert_int_equal(dpb_mesh_tcp_create_connected(host, 1, &fds[0], &transport), DPB_OK);
    struct dpb_mesh_args args = args_of(&duel->talk, 0, transport);
    args.survives = duel->survives;
    assert_int_equal(dpb_mesh_open(&args, &duel->talk.mesh), DPB_OK);
}

static void duel_begin(struct duel *duel)
{
    memset(duel, 0, sizeof *duel);
    add_peer(&duel->talk, 1);
    duel_connect(duel);
    dpb_first_error_clear();
}

static dpb_status duel_move(struct duel *duel)
{
    dpb_status status = DPB_OK;
    for (bool moved = true; moved && status == DPB_OK;) {
        moved = false;
        status = dpb_mesh_move(duel->talk.mesh, INT64_MAX, &moved);
    }
    return status;
}

static void duel_end(struct duel *duel)
{
    dpb_mesh_close(duel->talk.mesh, false);
    close(duel->peer);
    dpb_first_error_clear();
}

static void duel_say(struct duel *duel, const void *bytes, size_t n)
{
    assert_int_equal(write(duel->peer, bytes, n), n);
}

static void expect_refused(struct duel *duel, dpb_status status, const char *words)
{
    dpb_status first;
    assert_int_equal(duel_move(duel), status);
    expect_part(dpb_first_error(&first), words);
    duel_end(duel);
}

/* Kind 0, message 0 is to be of 0 bytes; kind 1, message 0 of 1. */
TEST(test_labels)
{
    static const struct {
        struct dpb_mesh_label label;
        const char *words;
    } bad[] = {
        {{.kind = 2}, "rank 1 sent no kind of message of exchange 0, bucket 0"},
        {{.kind = 2}, "rank 0 expected no such message now"},
        {{.kind = 1, .exchange = 1, .bytes = 1}, "rank 1 sent answers of exchange 1, bucket 0"},
        {{.kind = 1, .bucket = 1, .bytes = 1}, "expected answers of exchange 0, bucket 0, 1 bytes"},
        {{.kind = 1, .bytes = UINT64_C(1) << 63}, "9223372036854775808 bytes for byte 0"},
        {{.kind = 1, .bytes = 2}, "2 bytes for byte 0; rank 0 expected"},
        {{.kind = 1, .bytes = 1, .at_bytes = 1}, "1 bytes for byte 1; rank 0 expected"},
        {{.kind = DPB_MESH_KINDS + 1}, "no message of this version"},
    };
    uint8_t header[DPB_TCP_FRAME_BYTES];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        static struct duel duel;
        duel_begin(&duel);
        dpb_mesh_write_header(header, &bad[i].label);
        duel_say(&duel, header, sizeof header);
        expect_refused(&duel, DPB_FAILED, bad[i].words);
    }
    for (size_t byte = 0; byte < 16; byte++) {
        static struct duel duel;
        const struct dpb_mesh_label good = {.kind = 1, .bytes = 1};
        duel_begin(&duel);
        dpb_mesh_write_header(header, &good);
        header[byte] ^= 0x10;
        duel_say(&duel, header, sizeof header);
        if (byte < 4) {
            expect_refused(&duel, DPB_FAILED, "no message of this version");
            continue;
        }
        assert_int_equal(duel_move(&duel), DPB_FAILED);
        duel_end(&duel);
    }
}

/* What the receiver expects may not fit: a mistake here is no reason to write beyond its memory. */
TEST(test_landing)
{
    static struct duel duel;
    const struct dpb_mesh_label label = {.kind = 1, .bytes = 1};
    uint8_t header[DPB_TCP_FRAME_BYTES];
    duel_begin(&duel);
    dpb_mesh_close(duel.talk.mesh, false);
    close(duel.peer);
    duel.talk.peers[0].landings[1].bytes = 0;
    duel_connect(&duel);
    dpb_mesh_write_header(header, &label);
    duel_say(&duel, header, sizeof header);
    expect_refused(&duel, DPB_FAILED, "rank 1 sent answers");
}

/* Byte by byte it is the same message; a part of it is none. */
TEST(test_slow_peer)
{
    static struct duel duel;
    uint8_t bytes[DPB_TCP_FRAME_BYTES + 1];
    const struct dpb_mesh_label label = label_of(1, 0);
    duel_begin(&duel);
    dpb_mesh_write_header(bytes, &label);
    bytes[DPB_TCP_FRAME_BYTES] = byte_of(1, 1, 0, 0);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_true(dpb_mesh_arrived(duel.talk.mesh, 0, 1) == 0);
        duel_say(&duel, bytes + i, 1);
        assert_int_equal(duel_move(&duel), DPB_OK);
    }
    assert_true(dpb_mesh_arrived(duel.talk.mesh, 0, 1) == 1 && duel.talk.n_wrong == 0);
    duel_end(&duel);
}

/* Between messages, in a header, in a payload: only who says good-bye may go. */
TEST(test_early_close)
{
    static const size_t sent[] = {0, 20, DPB_TCP_FRAME_BYTES};
    const struct dpb_mesh_label label = label_of(1, 0);
    static struct duel duel, other;
    uint8_t header[DPB_TCP_FRAME_BYTES], bye[DPB_TCP_FRAME_BYTES];
    dpb_mesh_write_header(header, &label);
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        duel_begin(&duel);
        duel_say(&duel, header, sent[i]);
        shutdown(duel.peer, SHUT_WR);
        expect_refused(&duel, DPB_PEER, "receiving from rank 1: it closed the connection");
    }
    for (int through = 0; through < 2; through++) {
        duel_begin(&duel);
        duel_begin(&other);
        dpb_mesh_close(other.talk.mesh, through);
        ssize_t n = read(other.peer, bye, sizeof bye);
        assert_int_equal(n, through ? sizeof bye : 0);
        duel_say(&duel, bye, (size_t)n);
        shutdown(duel.peer, SHUT_WR);
        assert_int_equal(duel_move(&duel), through ? DPB_OK : DPB_PEER);
        assert_int_equal(dpb_mesh_left(duel.talk.mesh, 0), through);
        duel_end(&duel);
        close(other.peer);
    }
}

/* What is sent to a rank that has said good-bye and gone needs to get nowhere. */
TEST(test_send_after_bye)
{
    static struct duel duel;
    static const char payload[PLACE];
    uint8_t bye[DPB_TCP_FRAME_BYTES];
    const struct dpb_mesh_label label = {.bytes = PLACE};
    duel_begin(&duel);
    dpb_mesh_write_header(bye, &DPB_MESH_BYE);
    duel_say(&duel, bye, sizeof bye);
    shutdown(duel.peer, SHUT_RDWR);
    for (int i = 0; i < 3; i++) {
        dpb_mesh_send(duel.talk.mesh, 0, &label, payload);
        assert_int_equal(duel_move(&duel), DPB_OK);
        assert_true(dpb_mesh_idle(duel.talk.mesh, 0) &&
                    dpb_mesh_sent(duel.talk.mesh, 0) == (uint64_t)i + 1);
    }
    assert_true(dpb_mesh_left(duel.talk.mesh, 0));
    duel_end(&duel);
}

/* A peer that dies in a message has left: the message has not come, the one before has, and what is
 * sent to it gets nowhere. */
TEST(test_survives)
{
    static struct duel duel;
    static const char payload[PLACE];
    uint8_t header[DPB_TCP_FRAME_BYTES];
    const struct dpb_mesh_label label = label_of(1, 0), sent = {.bytes = PLACE};
    memset(&duel, 0, sizeof duel);
    duel.survives = true;
    add_peer(&duel.talk, 1);
    duel_connect(&duel);
    dpb_mesh_write_header(header, &label);
    duel_say(&duel, header, sizeof header);
    duel_say(&duel, payload, label.bytes);
    duel_say(&duel, header, sizeof header / 2);
    assert_int_equal(duel_move(&duel), DPB_OK);
    assert_false(dpb_mesh_left(duel.talk.mesh, 0));
    shutdown(duel.peer, SHUT_RDWR);
    for (int i = 0; i < 3; i++) {
        dpb_mesh_send(duel.talk.mesh, 0, &sent, payload);
        assert_int_equal(duel_move(&duel), DPB_OK);
        assert_true(dpb_mesh_idle(duel.talk.mesh, 0) && dpb_mesh_left(duel.talk.mesh, 0));
    }
    assert_int_equal(dpb_mesh_arrived(duel.talk.mesh, 0, 1), 1);
    duel_end(&duel);
}

/* Every byte is in one part, whole lines but for the last one. */
TEST(test_parts)
{
    for (uint64_t bytes = 0; bytes < 1500; bytes++)
        for (uint32_t n = 1; n <= DPB_STREAMS; n++) {
            uint64_t at = 0;
            for (uint32_t s = 0; s < n; s++) {
                struct dpb_range part = dpb_mesh_tcp_part(bytes, s, n);
                assert_true(part.begin == at && part.end >= at);
                assert_true(part.end == bytes || part.end % DPB_CACHE_LINE == 0);
                at = part.end;
            }
            assert_true(at == bytes);
        }
}

TRIAL_MAIN(cases)
