/* needs: verbs */
/*
 * test_rdma_failure.c - what ring_verbs says of a failed completion, of memory and of a device's
 * events: every status has its name, place and a hint. Needs no device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/test.h"
#include "lib/verbs/failure.h"

static char said[2048];

__attribute__((format(printf, 2, 3))) static dpb_status keep(dpb_status status, const char *format,
                                                             ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    return status;
}

__attribute__((format(printf, 2, 3))) static void keep_warning(const char *code, const char *format,
                                                               ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = snprintf(said, sizeof said, "%s: ", code);
    vsnprintf(said + n, sizeof said - (size_t)n, format, arguments);
    va_end(arguments);
}

static const struct dpb_host host = {.fail = keep, .warn = keep_warning};

static void expect_said(const char *const *words)
{
    for (; *words; words++)
        if (!strstr(said, *words))
            fail_msg("no '%s' in: %s", *words, said);
}

static const struct port port = {
    .gid.gid_index = 3, .name = "mlx5_0:2", .address = "10.1.0.1", .number = 2};
static struct ibv_qp queue = {.qp_num = 17};
static const struct link link_to_5 = {.port = &port,
                                      .queue = &queue,
                                      .mtu = IBV_MTU_1024,
                                      .peer = 5,
                                      .peer_queue = 18,
                                      .peer_gid_index = 7,
                                      .peer_port = "mlx5_1",
                                      .peer_address = "10.2.0.1"};

TEST(test_completions)
{
    static const struct {
        enum ibv_wc_status status;
        const char *name, *hint;
    } rows[] = {
        {IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR", "GID index 3 here (10.1.0.1)"},
        {IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded", "MTU of 1024"},
        {IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR", "the error state"},
        {IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR", "no receive posted"},
        {IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR", "registered no more"},
        {IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR", "memlock"},
        {IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR", "memlock"},
        {IBV_WC_LOC_ACCESS_ERR, "IBV_WC_LOC_ACCESS_ERR", "ulimit -l"},
        {IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR", "MTU 1024"},
        {IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR", "MTU 1024"},
        {IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR", "is the port of mlx5_0:2 up"},
        {IBV_WC_FATAL_ERR, "another status", "dmesg"},
    };
    static const char what[] = "step 12, bucket 4, round 1, chunk 6 (4096 bytes)";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct ibv_wc completion = {.status = rows[i].status, .vendor_err = 0x81};
        const char *const words[] = {rows[i].name,
                                     rows[i].hint,
                                     "rank 5",
                                     "vendor's code 0x81",
                                     "queue pair 17 of mlx5_0:2 to 18 of mlx5_1",
                                     what,
                                     NULL};
        assert_int_equal(failure_of_completion(&host, &link_to_5, &completion, what), DPB_IO);
        expect_said(words);
        assert_int_equal(failure_of_completion(&host, &link_to_5, &completion, NULL), DPB_IO);
        assert_null(strstr(said, "bucket"));
    }
}

TEST(test_registration)
{
    static const char *const locked[] = {"cannot register the inbox (4096 bytes)", "memlock",
                                         "may lock 65536 bytes", NULL};
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    limit = (struct rlimit){65536, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    assert_int_equal(failure_of_registration(&host, "the inbox", 4096, ENOMEM), DPB_IO);
    expect_said(locked);
    assert_int_equal(failure_of_registration(&host, "the inbox", 4096, EINVAL), DPB_IO);
    assert_null(strstr(said, "memlock"));
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(test_events)
{
    static const char *const fatal[] = {"mlx5_0:2", "dmesg", NULL};
    static const char *const down[] = {"rdma_port: mlx5_0:2", "may not arrive", NULL};
    struct ibv_async_event event = {.event_type = IBV_EVENT_DEVICE_FATAL};
    assert_int_equal(failure_of_event(&host, &port, &event), DPB_IO);
    expect_said(fatal);
    event.event_type = IBV_EVENT_PORT_ERR;
    assert_int_equal(failure_of_event(&host, &port, &event), DPB_OK);
    expect_said(down);
}

TEST_MAIN(NULL, NULL)
