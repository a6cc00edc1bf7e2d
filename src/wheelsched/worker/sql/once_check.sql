SELECT to_regclass('wheelsched_once') IS NOT NULL
