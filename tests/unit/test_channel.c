/*
 * test_channel.c - connections between the launchers of a job: they prove the job's secret,
 * strangers are dropped and cost nothing, and frames go through whole.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "launch/channel.h"
#include "lib/capture.h"
#include "lib/test.h"

static int listener = -1;
static struct dpb_circle circle;
static char address[DPB_ADDRESS_BYTES];

struct caller {
    char address[DPB_ADDRESS_BYTES];
    double seconds;
    dpb_status status;
    int fd;
    char why[DPB_CHANNEL_WHY_BYTES];
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    const struct dpb_deadline deadline = dpb_deadline_in((int64_t)(caller->seconds * 1e9));
    caller->status = dpb_channel_connect(caller->address, true, 3, DPB_CHANNEL_STORE, deadline,
                                         &caller->fd, caller->why);
    return NULL;
}

/* A connection that says nothing, or what no part says. */
static int knock(const void *bytes, size_t n)
{
    unsigned port = 0;
    assert_int_equal(sscanf(address + 2 * DPB_SECRET_BYTES, " %u", &port), 1);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    if (n > 0)
        assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
    return fd;
}

static struct dpb_door open_door(uint32_t n_expected)
{
    struct dpb_door door = {.listener = listener, .circle = &circle};
    assert_int_equal(dpb_door_open(&door, n_expected), DPB_OK);
    return door;
}

static bool take(struct dpb_door *door, int wait_ms, struct dpb_meeting *came)
{
    struct pollfd fds[1024];
    poll(fds, dpb_door_watch(door, fds), wait_ms);
    assert_int_equal(dpb_door_serve(door, fds, came), DPB_OK);
    return came->fd >= 0;
}

static int setup(void **state)
{
    (void)state;
    return dpb_channel_listen(&listener, &circle, address) == DPB_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    close(listener);
    dpb_first_error_clear();
    return 0;
}

/* A part comes through while strangers stall and send rubbish. */
TEST_WITH(test_proven, setup, teardown)
{
    struct caller caller = {.seconds = 10};
    pthread_t thread;
    struct dpb_door door = open_door(1);
    static const char rubbish[64] = "GET / HTTP/1.0\r\n\r\n";
    int quiet = knock(NULL, 0), loud = knock(rubbish, sizeof rubbish);
    struct dpb_meeting came = {.fd = -1};
    char byte;
    memcpy(caller.address, address, sizeof address);
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    while (!take(&door, 100, &came))
        ;
    pthread_join(thread, NULL);
    assert_int_equal(caller.status, DPB_OK);
    assert_true(came.greeting.dialler == 3 && came.greeting.purpose == DPB_CHANNEL_STORE);
    assert_true(recv(loud, &byte, 1, 0) <= 0); /* dropped; the quiet one may still say something */
    assert_int_equal(recv(quiet, &byte, 1, MSG_DONTWAIT), -1);
    dpb_door_close(&door);
    close(came.fd);
    close(caller.fd);
    close(quiet);
    close(loud);
}

static uint32_t count(const char *text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

/* Many more strangers than there are places, all silent, come first: a part takes one's place. */
TEST_WITH(test_crowd, setup, teardown)
{
    enum { CROWD = 300 };
    struct caller caller = {.seconds = 10};
    pthread_t thread;
    struct dpb_door door = open_door(1);
    int crowd[CROWD];
    struct dpb_meeting came = {.fd = -1};
    capture_begin();
    for (int i = 0; i < CROWD; i++)
        crowd[i] = knock(NULL, 0);
    memcpy(caller.address, address, sizeof address);
    int64_t until_ns = dpb_now_ns() + DPB_VISIT_NS / 2; /* before the first is too late */
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    while (came.fd < 0 && dpb_now_ns() < until_ns)
        take(&door, 20, &came);
    dpb_door_close(&door);
    const uint32_t n_lines = count(capture_end(), "dropped ");
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    pthread_join(thread, NULL);
    assert_true(came.fd >= 0 && came.greeting.dialler == 3 &&
                came.greeting.purpose == DPB_CHANNEL_STORE);
    assert_int_equal(caller.status, DPB_OK);
    assert_int_equal(n_lines, DPB_NAMED_STRANGERS + 1); /* the last counts the others */
    close(came.fd);
    close(caller.fd);
}

/* All parts of a large job have greeted before one of them has proven itself: none is dropped for
 * another's sake. */
TEST_WITH(test_burst, setup, teardown)
{
    enum { BURST = 2 * DPB_STRANGERS };
    struct dpb_door door = open_door(BURST);
    const struct dpb_greeting greeting = {.magic = DPB_GREETING_MAGIC, .dialler = 3};
    int burst[BURST];
    struct dpb_meeting came = {.fd = -1};
    struct dpb_answer answer;
    for (int i = 0; i < BURST; i++)
        burst[i] = knock(&greeting, sizeof greeting);
    for (int i = 0; i < 2 * BURST; i++)
        assert_false(take(&door, 1, &came));
    for (int i = 0; i < BURST; i++) {
        assert_int_equal(recv(burst[i], &answer, sizeof answer, 0), sizeof answer);
        assert_int_equal(recv(burst[i], &answer, 1, MSG_DONTWAIT), -1); /* 0: dropped */
        close(burst[i]);
    }
    dpb_door_close(&door);
}

/* From now on this process can open no descriptor more, until it closes one of its own. poll takes
 * no more entries than the limit. */
struct shortage {
    int held[1024];
    uint32_t n;
    struct rlimit before;
};

static void use_up_descriptors(struct shortage *shortage)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &shortage->before), 0);
    const struct rlimit few = {.rlim_cur = 1024, .rlim_max = shortage->before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (shortage->n = 0; shortage->n < 1024; shortage->n++)
        if ((shortage->held[shortage->n] = dup(listener)) < 0)
            break;
    assert_true(shortage->n > 0 && shortage->n < 1024);
}

static void end_shortage(struct shortage *shortage)
{
    for (uint32_t i = 0; i < shortage->n; i++)
        close(shortage->held[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &shortage->before), 0);
}

/* Without a descriptor the door waits for a visitor to leave, without spinning. With no visitor
 * either it says so at once. */
TEST_WITH(test_no_descriptors, setup, teardown)
{
    struct dpb_door door = open_door(1);
    struct pollfd fds[1024];
    struct dpb_meeting came;
    struct shortage shortage;
    int first = knock(NULL, 0), second = knock(NULL, 0);
    assert_false(take(&door, 1000, &came));
    use_up_descriptors(&shortage);
    assert_false(take(&door, 1000, &came));
    dpb_door_watch(&door, fds);
    assert_int_equal(fds[0].fd, -1);

    close(first);
    assert_false(take(&door, 1000, &came)); /* sees that it has left */
    dpb_door_watch(&door, fds);
    assert_int_equal(fds[0].fd, listener);
    assert_false(take(&door, 1000, &came)); /* lets the second in */
    end_shortage(&shortage);
    close(second);
    assert_false(take(&door, 1000, &came));

    int third = knock(NULL, 0);
    use_up_descriptors(&shortage);
    poll(fds, dpb_door_watch(&door, fds), 1000);
    assert_int_equal(dpb_door_serve(&door, fds, &came), DPB_FAILED);
    assert_non_null(strstr(dpb_first_error(NULL), "ulimit -n"));
    end_shortage(&shortage);
    dpb_door_close(&door);
    close(third);
}

/* With another secret neither side believes the other. */
TEST_WITH(test_other_secret, setup, teardown)
{
    struct caller caller = {.seconds = 0.5};
    pthread_t thread;
    struct dpb_door door = open_door(1);
    struct dpb_meeting came = {.fd = -1};
    memcpy(caller.address, address, sizeof address);
    caller.address[5] = caller.address[5] == '0' ? '1' : '0';
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    for (int64_t until_ns = dpb_now_ns() + 800000000; dpb_now_ns() < until_ns;)
        assert_false(take(&door, 20, &came));
    pthread_join(thread, NULL);
    assert_int_equal(caller.status, DPB_PEER);
    assert_non_null(strstr(caller.why, "127.0.0.1 port "));
    dpb_door_close(&door);
}

TEST_WITH(test_addresses, setup, teardown)
{
    static const char *const bad[] = {"", "0123", "zz", "12345 10.0.0.1"};
    char text[DPB_ADDRESS_BYTES], why[DPB_CHANNEL_WHY_BYTES];
    const struct dpb_deadline now = dpb_deadline_in(0);
    int fd;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(dpb_channel_connect(bad[i], true, 1, DPB_CHANNEL_PART, now, &fd, why),
                         DPB_FAILED);
    memcpy(text, address, sizeof text);
    snprintf(text + 2 * DPB_SECRET_BYTES, 64, " 99999 127.0.0.1");
    assert_int_equal(dpb_channel_connect(text, true, 1, DPB_CHANNEL_PART, now, &fd, why),
                     DPB_FAILED);
}

TEST(test_frames)
{
    int pair[2];
    uint8_t large[100000];
    struct dpb_frame frame;
    const void *value;
    char why[128];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    struct dpb_channel a = {.fd = pair[0]}, b = {.fd = pair[1]};
    memset(large, 7, sizeof large);
    for (uint32_t i = 0; i < 20; i++)
        assert_true(dpb_channel_say(&a, DPB_CHANNEL_PAGE, i, large, sizeof large - i));
    uint32_t n = 0;
    while (n < 20) {
        assert_true(dpb_channel_flush(&a) && dpb_channel_receive(&b));
        while (dpb_channel_next(&b, &frame, &value, why) > 0) {
            assert_int_equal(frame.op, DPB_CHANNEL_PAGE);
            assert_int_equal(frame.peer, n);
            assert_int_equal(frame.value_bytes, sizeof large - n);
            assert_memory_equal(value, large, frame.value_bytes);
            n++;
        }
    }
    /* What ranks say to the store is nothing that launchers say to each other. */
    const struct dpb_frame put = {.magic = DPB_STORE_MAGIC, .op = DPB_STORE_BARRIER};
    assert_int_equal(send(pair[0], &put, sizeof put, 0), sizeof put);
    assert_true(dpb_channel_receive(&b));
    assert_int_equal(dpb_channel_next(&b, &frame, &value, why), -1);
    dpb_channel_close(&a);
    assert_false(dpb_channel_receive(&b));
    dpb_channel_close(&b);
}

TEST_MAIN(NULL, NULL)
