/*
 * board.c - one memfd: a header, the control block, a status page a rank, a journal a rank. Every
 * part starts on a page of its own, so that no two writers share a cache line.
 */
#include "world/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

#define BOARD_MAGIC UINT64_C(0x324452414f425044) /* "DPBOARD2" */

enum { BOARD_PAGE = 4096 };

struct board_header {
    uint64_t magic;
    uint64_t total_bytes, journal_bytes, journal_stride;
    uint32_t page_bytes; /* of struct dpb_status_page in this version */
    uint32_t n_ranks;
    uint32_t ended;
    int32_t signal_number;
    struct dpb_board_about about;
    struct dpb_board_kept kept;
    struct dpb_board_turns turns;
};

struct dpb_board {
    int fd;
    uint8_t *memory;
    size_t bytes;
    /* As the header had them when they were checked: others may write to it. */
    uint32_t n_ranks;
    uint64_t journal_bytes, journal_stride;
};

static size_t whole_pages(size_t bytes)
{
    return (bytes + BOARD_PAGE - 1) / BOARD_PAGE * BOARD_PAGE;
}

static const size_t control_offset = BOARD_PAGE;

static size_t status_offset(uint32_t rank)
{
    return control_offset + whole_pages(DPB_BOARD_CONTROL_BYTES) +
           rank * whole_pages(sizeof(struct dpb_status_page));
}

static struct board_header *header_of(const struct dpb_board *board)
{
    return (struct board_header *)(void *)board->memory;
}

static void take_shape(struct dpb_board *board, const struct board_header *header)
{
    board->n_ranks = header->n_ranks;
    board->journal_bytes = header->journal_bytes;
    board->journal_stride = header->journal_stride;
}

/* Whether the parts that the header describes are within `bytes`. */
static bool header_holds(const struct board_header *header, size_t bytes)
{
    size_t journals;
    return header->magic == BOARD_MAGIC && header->total_bytes == bytes &&
           header->page_bytes == sizeof(struct dpb_status_page) && header->n_ranks > 0 &&
           header->n_ranks <= DPB_JOB_RANKS && header->journal_bytes <= header->journal_stride &&
           !__builtin_mul_overflow(header->journal_stride, header->n_ranks, &journals) &&
           status_offset(header->n_ranks) <= bytes &&
           journals <= bytes - status_offset(header->n_ranks);
}

/* Checks a header that others may write to, as it is now. */
static bool check_shape(struct dpb_board *board)
{
    const struct board_header header = *header_of(board);
    take_shape(board, &header);
    return header_holds(&header, board->bytes);
}

/* Maps all of board->fd; the caller has checked its size. */
static dpb_status map_board(struct dpb_board *board, int protection)
{
    void *memory = mmap(NULL, board->bytes, protection, MAP_SHARED | MAP_NORESERVE, board->fd, 0);
    if (memory == MAP_FAILED)
        return dpb_fail(DPB_NO_MEMORY, "cannot map the job's shared memory of %zu bytes: %s",
                        board->bytes, strerror(errno));
    board->memory = memory;
    return DPB_OK;
}

dpb_status dpb_board_create(uint32_t n_ranks, size_t journal_bytes, struct dpb_board **board)
{
    size_t stride = whole_pages(journal_bytes), total;
    if (n_ranks == 0 || n_ranks > DPB_JOB_RANKS)
        return dpb_fail(DPB_USAGE, "a job has 1 to %d processes, not %u", DPB_JOB_RANKS, n_ranks);
    if (stride < journal_bytes || __builtin_mul_overflow(stride, n_ranks, &total) ||
        __builtin_add_overflow(total, status_offset(n_ranks), &total) || total > INT64_MAX)
        return dpb_fail(DPB_USAGE, "a journal of %zu bytes for each of %u processes is too large",
                        journal_bytes, n_ranks);
    struct dpb_board *made = calloc(1, sizeof *made);
    DPB_TRY(dpb_allocated(made));
    made->fd = dpb_memory_file("dpbench-board", total);
    made->bytes = total;
    dpb_status status =
        made->fd >= 0
            ? map_board(made, PROT_READ | PROT_WRITE)
            : dpb_fail(DPB_NO_MEMORY, "cannot make the job's shared memory of %zu bytes: %s", total,
                       strerror(errno));
    if (status != DPB_OK) {
        dpb_board_destroy(made);
        return status;
    }
    *header_of(made) = (struct board_header){.magic = BOARD_MAGIC,
                                             .total_bytes = total,
                                             .journal_bytes = journal_bytes,
                                             .journal_stride = stride,
                                             .page_bytes = sizeof(struct dpb_status_page),
                                             .n_ranks = n_ranks};
    take_shape(made, header_of(made));
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        struct dpb_status_page *page = dpb_board_page(made, rank);
        page->bucket = UINT64_MAX;
        page->peer = UINT32_MAX;
    }
    *board = made;
    return DPB_OK;
}

int dpb_board_fd(const struct dpb_board *board)
{
    return board->fd;
}

/* A board of the descriptor, which it takes over. DPB_USAGE, and no message: it is no board of this
 * version. */
static dpb_status attach(int fd, int protection, struct dpb_board **board)
{
    struct stat info;
    struct dpb_board *made = calloc(1, sizeof *made);
    if (!made) {
        close(fd);
        return dpb_allocated(made);
    }
    made->fd = fd;
    dpb_status status = DPB_USAGE;
    if (fstat(fd, &info) == 0 && info.st_size >= (off_t)status_offset(1)) {
        made->bytes = (size_t)info.st_size;
        status = map_board(made, protection);
    }
    if (status == DPB_OK && !check_shape(made))
        status = DPB_USAGE;
    if (status != DPB_OK)
        dpb_board_destroy(made);
    else
        *board = made;
    return status;
}

dpb_status dpb_board_open(int fd, struct dpb_board **board)
{
    struct dpb_board *made;
    const dpb_status status = attach(fd, PROT_READ | PROT_WRITE, &made);
    if (status == DPB_USAGE)
        return dpb_fail(DPB_FAILED,
                        "descriptor %d is not the job's shared memory, or not of this version", fd);
    DPB_TRY(status);
    close(fd); /* the mapping is all that a rank needs */
    made->fd = -1;
    *board = made;
    return DPB_OK;
}

dpb_status dpb_board_watch(int fd, struct dpb_board **board)
{
    /* Without this seal the memory could shrink under its reader. */
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && seals & F_SEAL_SHRINK)
        return attach(fd, PROT_READ, board);
    close(fd);
    return DPB_USAGE;
}

void dpb_board_destroy(struct dpb_board *board)
{
    if (!board)
        return;
    if (board->memory)
        munmap(board->memory, board->bytes);
    if (board->fd >= 0)
        close(board->fd);
    free(board);
}

uint32_t dpb_board_ranks(const struct dpb_board *board)
{
    return board->n_ranks;
}

struct dpb_status_page *dpb_board_page(struct dpb_board *board, uint32_t rank)
{
    return (struct dpb_status_page *)(void *)(board->memory + status_offset(rank));
}

struct dpb_board_about *dpb_board_about(struct dpb_board *board)
{
    return &header_of(board)->about;
}

struct dpb_board_kept *dpb_board_kept(struct dpb_board *board)
{
    return &header_of(board)->kept;
}

struct dpb_board_turns *dpb_board_turns(struct dpb_board *board)
{
    return &header_of(board)->turns;
}

void *dpb_board_journal(struct dpb_board *board, uint32_t rank, size_t *bytes)
{
    if (bytes)
        *bytes = board->journal_bytes;
    return board->memory + status_offset(board->n_ranks) + rank * board->journal_stride;
}

bool dpb_board_written(const struct dpb_board *board, uint32_t rank, size_t from, size_t *begin,
                       size_t *end)
{
    off_t start = (off_t)(status_offset(board->n_ranks) + rank * board->journal_stride);
    off_t data = lseek(board->fd, start + (off_t)from, SEEK_DATA);
    if (data < 0 || (size_t)(data - start) >= board->journal_bytes)
        return false;
    off_t hole = lseek(board->fd, data, SEEK_HOLE);
    *begin = (size_t)(data - start);
    *end = hole > data ? (size_t)(hole - start) : board->journal_bytes;
    *end = *end < board->journal_bytes ? *end : board->journal_bytes;
    return true;
}

void *dpb_board_control(struct dpb_board *board)
{
    return board->memory + control_offset;
}

bool dpb_board_write(struct dpb_board *board, uint64_t offset, uint64_t value)
{
    if (offset % sizeof value != 0 || offset > DPB_BOARD_CONTROL_BYTES - sizeof value)
        return false;
    uint64_t *word = (uint64_t *)(void *)((uint8_t *)dpb_board_control(board) + offset);
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    return true;
}

bool dpb_board_apply(struct dpb_board *board, const struct dpb_post *post)
{
    bool good = post->n_words <= DPB_POST_WORDS;
    for (uint32_t i = 0; good && i < post->n_words; i++)
        good = dpb_board_write(board, post->words[i].offset, post->words[i].value);
    return good;
}

void dpb_board_lose(struct dpb_board *board, uint32_t rank)
{
    __atomic_store_n(&dpb_board_page(board, rank)->lost, 1, __ATOMIC_RELEASE);
}

bool dpb_board_lost(struct dpb_board *board, uint32_t rank)
{
    return __atomic_load_n(&dpb_board_page(board, rank)->lost, __ATOMIC_ACQUIRE) != 0;
}

void dpb_board_end_job(struct dpb_board *board)
{
    __atomic_store_n(&header_of(board)->ended, 1, __ATOMIC_RELEASE);
}

bool dpb_board_job_ended(const struct dpb_board *board)
{
    return __atomic_load_n(&header_of(board)->ended, __ATOMIC_ACQUIRE) != 0;
}

void dpb_board_interrupt(struct dpb_board *board, int signal_number)
{
    __atomic_store_n(&header_of(board)->signal_number, signal_number, __ATOMIC_RELEASE);
}

int dpb_board_interrupted(const struct dpb_board *board)
{
    return __atomic_load_n(&header_of(board)->signal_number, __ATOMIC_ACQUIRE);
}
