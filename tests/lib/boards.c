/* boards.c - see boards.h. */
#include "lib/boards.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "world/board.h"

enum { SOME_STEPS = 5, MOST_DESCRIPTORS = 256 };

/* NULL: not there yet. @owned */
static struct dpb_board *board_of(pid_t launcher)
{
    char path[64], target[64];
    struct dpb_board *board = NULL;
    for (int fd = 3; launcher != 0 && !board && fd < MOST_DESCRIPTORS; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)launcher, fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        int own = strstr(target, "dpbench-board") ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (own >= 0)
            dpb_board_open(own, &board);
    }
    return board;
}

bool board_is_there(pid_t launcher)
{
    struct dpb_board *board = board_of(launcher);
    const bool there = board != NULL;
    dpb_board_destroy(board);
    return there;
}

int board_ranks_with_steps(pid_t launcher, int n)
{
    struct dpb_board *board = board_of(launcher);
    int found = 0;
    for (int rank = 0; board && rank < n; rank++) {
        const struct dpb_status_page *page = dpb_board_page(board, (uint32_t)rank);
        found += page->role == DPB_SERVER || page->step >= SOME_STEPS;
    }
    dpb_board_destroy(board);
    return found;
}

long board_step(pid_t launcher)
{
    struct dpb_board *board = board_of(launcher);
    const long step = board ? (long)dpb_board_page(board, 0)->step : -1;
    dpb_board_destroy(board);
    return step;
}
