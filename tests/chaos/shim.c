/* Loaded into every process of a chaos run: makes syncing slow, the clock wrong, or a disk full, on command.
 *
 * Each process maps the file CHAOS_CONTROL/ATTUNE_PROCESS and obeys what stands there at that moment, so that a fault
 * begins and ends without a call into the process. Only the wall clock is moved: nothing may depend on it, while a
 * monotonic clock that jumps would be another machine altogether.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t clock_offset_seconds;
    int64_t sync_delay_microseconds;
    int64_t disk_full; /* 1: making and writing fails; 2: and whoever asks how much is free is told so */
    char folder[1000]; /* below which the disk is full */
};

static struct control nothing;
static volatile struct control *control = &nothing;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void find_control(void) {
    const char *folder = getenv("CHAOS_CONTROL"), *process = getenv("ATTUNE_PROCESS");
    char path[1024];
    if (!folder || !process || snprintf(path, sizeof path, "%s/%s", folder, process) >= (int)sizeof path) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

/* The wall clock */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int answer = real(clock, now);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += control->clock_offset_seconds;
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int answer = real(now, zone);
    if (answer == 0) now->tv_sec += control->clock_offset_seconds;
    return answer;
}

time_t time(time_t *now) {
    REAL(time);
    time_t answer = real(NULL) + control->clock_offset_seconds;
    if (now) *now = answer;
    return answer;
}

/* Syncing */

static void delay(void) {
    int64_t wait = control->sync_delay_microseconds;
    if (wait > 0) usleep((useconds_t)wait);
}

int fsync(int file) {
    REAL(fsync);
    delay();
    return real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    delay();
    return real(file);
}

/* A full disk */

static int is_full(const char *path) {
    char inside[1000];
    if (!control->disk_full || path[0] != '/') return 0;
    memcpy(inside, (const char *)control->folder, sizeof inside);
    return strncmp(path, inside, strlen(inside)) == 0;
}

static int is_full_behind(int file) {
    char link[64], path[1000];
    if (!control->disk_full) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_full(path);
}

#define REFUSE_IF(full) \
    if (full) { \
        errno = ENOSPC; \
        return -1; \
    }

#define OPENS(name, HEAD, ...) \
    int name(HEAD const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        REFUSE_IF((flags & O_CREAT) && is_full(path)) \
        return real(__VA_ARGS__ path, flags, mode); \
    }
#define COMMA ,
OPENS(open, )
OPENS(open64, )
OPENS(openat, int folder COMMA, folder COMMA)
OPENS(openat64, int folder COMMA, folder COMMA)

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    REFUSE_IF(is_full(path))
    return real(path, mode);
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    REFUSE_IF(is_full_behind(file))
    return real(file, bytes, count);
}

int statvfs(const char *restrict path, struct statvfs *restrict found) {
    REAL(statvfs);
    int answer = real(path, found);
    if (answer == 0 && control->disk_full == 2 && is_full(path)) found->f_bfree = found->f_bavail = 0;
    return answer;
}

int statvfs64(const char *restrict path, struct statvfs64 *restrict found) {
    REAL(statvfs64);
    int answer = real(path, found);
    if (answer == 0 && control->disk_full == 2 && is_full(path)) found->f_bfree = found->f_bavail = 0;
    return answer;
}
