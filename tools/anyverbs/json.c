/* json.c: text in JSON, and for a terminal.
 * In:    text of any content      Out: a JSON string; text without control characters
 * Runs:  the only thread          Locks: none
 */
#include "command.h"

void json_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else if (*c < 0x20 || *c >= 0x7f)
			fprintf(out, "\\u%04x", *c);
		else
			fputc(*c, out);
	}
	fputc('"', out);
}

void text_clean(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
}
