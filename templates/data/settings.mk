# For `make check`.
SETTINGS = data.path=rows.txt
