#include "sim.h"

#include <stdarg.h>
#include <time.h>

/* CUDA's log: why calls failed, the latest messages of all threads. */
#define MESSAGES 100
#define LENGTH 256

static char messages[MESSAGES][LENGTH];
static unsigned written; /* the next iterator */

void logged(const char *format, ...)
{
	char text[512], clock[16];
	time_t now = time(0);
	struct tm at;
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &at));
	snprintf(messages[written++ % MESSAGES], LENGTH, "[%s.000][%d][CUDA][E] %.200s", clock, os_thread(), text);
	violation("%s", text);
	if (SIM_VERSION < 12090) /* without a log that programs can read */
		fprintf(stderr, "simulated driver: %s\n", text);
}

CUresult cuLogsCurrent(CUlogIterator *iterator, unsigned flags)
{
	ENTER(BARE | EARLY | DEAD | CALLBACK);
	if (!iterator || flags)
		return INVALID_VALUE;
	*iterator = written;
	return OK;
}

/* The newest messages that fit stand under a line that says that some are missing. */
CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned flags)
{
	ENTER(BARE | EARLY | DEAD | CALLBACK);
	static const char missing[] = "some messages are missing\n";
	unsigned oldest = written < MESSAGES ? 0 : written - MESSAGES, from = iterator ? *iterator : 0, first = written;
	size_t n = sizeof missing, at;

	if (!buffer || !size || flags || from > written)
		return INVALID_VALUE;
	while (first > from && first > oldest && n + strlen(messages[(first - 1) % MESSAGES]) + 1 <= *size)
		n += strlen(messages[--first % MESSAGES]) + 1;
	if (first == written && from < written)
		return INVALID_VALUE; /* not even one fits */
	at = first > from ? sprintf(buffer, "%s", missing) : 0;
	for (unsigned i = first; i < written; i++)
		at += sprintf(buffer + at, "%s\n", messages[i % MESSAGES]);
	if (*size > at)
		buffer[at] = 0;
	*size = at;
	if (iterator)
		*iterator = written;
	return OK;
}
