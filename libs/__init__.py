"""What services share: bus, db, objects, telemetry, kit, sdk, cli. Imports `contracts`, never `services`."""
