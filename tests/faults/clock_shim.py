"""Another time for one process: its wall clock, ahead or behind by what a file says.

A few lines of C before the C library (LD_PRELOAD). Only the wall clock is moved: the clocks that
count since the boot are left alone, as they are when an administrator sets the time.
"""

import mmap
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_us;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset_us = page;
}

static void shift(struct timespec *at) {
    if (!offset_us) return;
    int64_t us = *offset_us;
    int64_t ns = at->tv_nsec + (us % 1000000) * 1000;
    at->tv_sec += us / 1000000;
    if (ns >= 1000000000) { ns -= 1000000000; at->tv_sec++; }
    if (ns < 0) { ns += 1000000000; at->tv_sec--; }
    at->tv_nsec = ns;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real ? real(clock, at) : (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(at);
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class ClockShim:
    """The library, and the file that says how far off the wall clock is."""

    def __init__(self, directory: Path) -> None:
        self._library = directory / "clock_shim.so"
        self._file = directory / "clock_offset"
        source = directory / "clock_shim.c"
        source.write_text(SOURCE)
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True
        )
        self._file.write_bytes(bytes(8))
        for path in (self._library, self._file):
            path.chmod(0o644)
        self._library.chmod(0o755)

    @staticmethod
    def is_available() -> bool:
        return shutil.which("cc") is not None and os.uname().sysname == "Linux"

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULTS_CLOCK": str(self._file)}

    def set(self, offset_us: int) -> None:
        """From this moment on the wall clock of whoever runs with it is that far ahead."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:] = offset_us.to_bytes(8, "little", signed=True)
