#include "nvrtc.h"

FILE *text_open(void)
{
#ifdef _WIN32
	char *name = _tempnam(0, "nvrtc");
	FILE *file = name ? fopen(name, "w+bTD") : 0; /* tmpfile makes it where programs may not */

	free(name);
	return file;
#else
	return tmpfile();
#endif
}

char *text_close(FILE *file)
{
	long size = ftell(file);
	char *text = malloc(size + 1);

	rewind(file);
	text[fread(text, 1, size, file)] = 0;
	fclose(file);
	return text;
}
